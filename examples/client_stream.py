"""Follow a run as it happens, with a tool of this program, and with approval of other tools by the user.

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
        zone: only UTC is supported.
    """
    return datetime.now(UTC).isoformat(timespec="minutes")


def allow(permission: Permission) -> bool:
    """Ask the user at the terminal for approval."""
    return input(f"? {permission.name} {permission.arguments} [y/n] ").strip() == "y"


def choose(question: Question) -> str:
    """Ask the user at the terminal the agent's question. The answer is the label of an option or any other text."""
    first = question.questions[0]
    return input(f"? {first.question} ({', '.join(option.label for option in first.options)}) ")


async def main(url: str, key: str, text: str, protocol: str = "aap", agent: str = "assistant") -> None:
    async with AsyncClient(url, key=key, protocol=protocol) as client:  # type: ignore[arg-type]  # from the command line
        session = await client.create(agent, tools=[local_time], on_permission=allow, on_question=choose)
        async for event in session.run(text):
            match event:
                case Text(text=text):
                    print(text, end="", flush=True)
                case ToolCall(name=name, arguments=arguments):
                    print(f"[{name} {arguments}]")
                case ToolResult(name=name, text=text):
                    print(f"[{name} returned {text}]")
                case Ended(reason=reason):
                    print(f"\n{reason}")
        print(f"session {session.id} can be continued over any protocol")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ClientError as error:  # an invalid key, an unknown agent, no connection, ...
        sys.exit(str(error))
