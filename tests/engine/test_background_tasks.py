"""Tasks that nobody awaits."""

import asyncio

from structlog.testing import capture_logs

from dragoman.engine.background_tasks import BackgroundTasks


async def test_an_error_is_logged_once_with_the_name_of_the_task() -> None:
    """Nobody awaits the task, so that the log is the only place where its error can show."""
    tasks = BackgroundTasks()

    async def fail() -> None:
        raise RuntimeError("no luck")

    with capture_logs() as logs:
        tasks.start(fail(), "a task")
        await tasks.wait()
    assert [(line["event"], line["task"], str(line["exc_info"])) for line in logs] == [
        ("background task failed", "a task", "no luck")
    ]
    assert len(tasks) == 0


async def test_a_cancelled_task_ends_without_a_line_in_the_log() -> None:
    """Closing a server cancels its tasks: that is no error."""
    tasks = BackgroundTasks()
    with capture_logs() as logs:
        tasks.start(asyncio.sleep(3600), "a task")
        tasks.cancel()
        await tasks.wait()
    assert (logs, len(tasks)) == ([], 0)
