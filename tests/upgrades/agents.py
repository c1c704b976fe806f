"""The agent of the releases' data. Releases import it too, so it uses only what all of them offer."""

import dragoman
from dragoman.agents.run import Run


@dragoman.agent(name="worker", history=True)
async def worker(run: Run) -> str:
    """Answer to a background task."""
    return f"worked on: {run.text}"


@dragoman.tool
async def careful(context: dragoman.ToolContext, text: str) -> str:
    """Ask for approval while it runs."""
    if context.answer is None:
        raise dragoman.Deferred("client", {"wanted": text})
    return f"careful with {text}: {context.answer}"


@dragoman.agent(
    name="everything", description="Uses what the rehearsal agent does not.", tools=[careful], memory=True, history=True
)
async def everything(run: Run) -> str:
    """Emit what the log can hold; each message is counted in a kept value."""
    kept = await run.kept()
    count = int(kept.get("count", b"0")) + 1
    run.stage("router")
    run.think("thinking")
    run.share({"count": count})
    run.card({"version": "2.0", "root": {"type": "text", "text": f"card {count}"}})
    run.plan(dragoman.Plan(status="in_progress", steps=(dragoman.PlanStep(title="dig", status="pending"),)))
    run.add_usage(input_tokens=40, output_tokens=2)
    run.attach({"private": count})
    await run.keep({"count": str(count).encode(), "blob": bytes(range(64))})
    run.stage(None)
    if run.text == "remember":
        await run.remember("likes tea", reason="said so", topic="taste")
    if run.text == "start":
        await run.start("worker", "dig deeper")
    if run.text == "careful":
        return str(await run.call(careful, text="this"))
    return f"message {count}: {run.text}"
