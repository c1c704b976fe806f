"""Follow a run as it happens, with a tool of this program's own and a person who is asked before others run.

python examples/client_stream.py http://127.0.0.1:8000 KEY "add 1 and 2"          # over AAP
python examples/client_stream.py http://127.0.0.1:8000 KEY "add 1 and 2" ag-ui    # or agentscope
python examples/client_stream.py http://127.0.0.1:8000 KEY "add 1 and 2" aap rehearsal    # another agent
"""

import asyncio
import sys
from datetime import UTC, datetime

from dragoman.client import AsyncClient, ClientError, Ended, Permission, Question, Text, ToolCall, ToolResult


def local_time(zone: str = "UTC") -> str:
    """Tell the time.

    Args:
        zone: only UTC is known here.
    """
    return datetime.now(UTC).isoformat(timespec="minutes")


def allow(permission: Permission) -> bool:
    """Ask the person at the terminal."""
    return input(f"? {permission.name} {permission.arguments} [y/n] ").strip() == "y"


def choose(question: Question) -> str:
    """The same for a question of the agent's: an option's label, or words of one's own."""
    asked = question.questions[0]
    return input(f"? {asked.question} ({', '.join(option.label for option in asked.options)}) ")


async def main(url: str, key: str, text: str, protocol: str = "aap", agent: str = "assistant") -> None:
    async with AsyncClient(url, key=key, protocol=protocol) as client:  # type: ignore[arg-type]  # from the command line
        session = await client.create(agent, tools=[local_time], on_permission=allow, on_question=choose)
        async for event in session.run(text):
            match event:
                case Text(text=words):
                    print(words, end="", flush=True)
                case ToolCall(name=name, arguments=arguments):
                    print(f"[{name} {arguments}]")
                case ToolResult(name=name, text=words):
                    print(f"[{name} gave {words}]")
                case Ended(reason=reason):
                    print(f"\n{reason}")
        print(f"{session.id} can be opened through any protocol")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ClientError as error:  # a key or an agent that is not known there, no connection, ...
        sys.exit(str(error))
