"""An agent that asks, has the application sign, and pays. Payments are counted in a file, across crashes."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from dragoman import Run, ToolContext, ToolFailed, agent, tool


def _record(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as file:
        file.write(line)


async def _pay(context: ToolContext, ledger: str, order: str, seconds: float) -> str:
    await asyncio.to_thread(_record, ledger, f"{order} {context.call_id}\n")
    await asyncio.sleep(seconds)
    return f"paid {order}"


@tool(needs_approval=True, on_restart="ask")
async def pay(context: ToolContext, ledger: str, order: str, seconds: float) -> str:
    """Pay. After a crash the user is asked again."""
    return await _pay(context, ledger, order, seconds)


@tool(needs_approval=True)
async def pay_once(context: ToolContext, ledger: str, order: str, seconds: float) -> str:
    """Pay. After a crash the payment has failed."""
    return await _pay(context, ledger, order, seconds)


@agent(tools=[pay, pay_once], client_tools=True, history=True)
async def shop(run: Run) -> AsyncIterator[str]:
    """Pays what a message orders."""
    order = json.loads(run.text)
    answer = await run.ask("Pay?", ["yes", "no"])
    signature = await run.call("sign")
    try:
        paid = await run.call(order.pop("tool"), **order)
    except ToolFailed as error:
        paid = str(error)
    yield f"{answer}, {signature}, {paid}"
