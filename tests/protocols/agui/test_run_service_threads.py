"""What a front end shows besides one conversation: its threads, what became of a run, and days in the user's zone."""

from datetime import datetime
from typing import Any
from uuid import uuid4

from tests.protocols.aap.client import AapClient
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, new_thread, problem, run_input, script
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any
STAMP = {"call": {"name": "stamp", "input": {"text": "x"}}}


@requirement("runs:threads:list")
async def test_threads_are_listed_in_pages_newest_first(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        assert (await alice.get("/threads")).json == {"threads": [], "next": None}
        threads = [new_thread() for _ in range(2)]
        await alice.play(threads[0], "hello")
        await alice.play(threads[1], script(STAMP))
        await Endpoint(server.connection, server.key("alice")).run(an_input("over AG-UI", thread=str(uuid4())))
        await RunServiceClient(server.connection, server.key("bob")).play(new_thread(), "of bob")
        first = (await alice.get("/threads?limit=2")).json
        rest = (await alice.get(f"/threads?limit=2&after={first['next']}")).json
        listed = [*first["threads"], *rest["threads"]]
        assert (len(first["threads"]), rest["next"]) == (2, None)
        assert [each["threadId"] for each in listed[1:]] == threads[::-1]
        assert [(each["title"][:10], each["status"]) for each in listed][::2] == [
            ("over AG-UI", "idle"),
            ("hello", "idle"),
        ]
        assert (listed[1]["status"], listed[1]["agent_type"]) == ("waiting", "rehearsal")
        assert list(listed[0]) == ["threadId", "title", "agent_type", "status", "createdAt", "updatedAt"]
        for query in ("limit=0", "limit=x", "after=x"):
            assert (await alice.get(f"/threads?{query}")).status == 422


@requirement("runs:status:get")
async def test_the_status_of_a_run_says_how_it_is_and_how_it_ended(app_server: AppServer) -> None:
    alice, thread = RunServiceClient(app_server.connection, app_server.key("alice")), new_thread()

    async def status(run: str | None = None) -> Json:
        return (await alice.get(f"/runs/{thread}" + ("" if run is None else f"?runId={run}"))).json

    accepted = await alice.submit(run_input(thread, "hello", "r-1"))
    await alice.events(thread, "r-1")
    ended = {
        "taskId": accepted["taskId"],
        "threadId": thread,
        "runId": "r-1",
        "status": "completed",
        "stopReason": "end_turn",
        "error": None,
    }
    assert await status() == await status("r-1") == await status(accepted["taskId"]) == ended
    await alice.play(thread, script({"fail": {"code": "no_stock", "message": "Sold out"}}), "r-2")
    failed = await status()
    assert (failed["status"], failed["error"]) == ("failed", {"code": "no_stock", "message": "Sold out"})
    await alice.play(thread, script({"fail": "internal"}), "r-3")
    assert (await status())["error"] == {"code": "agent_error", "message": "runtime execution failed"}
    await alice.play(thread, script(STAMP), "r-4")
    assert (await status())["status"] == "waiting"
    await alice.submit(run_input(thread, script({"say": "x"}, {"wait_ms": 600_000}), "r-5"))
    await alice.submit(run_input(thread, "hello", "r-6"))
    assert [(await status(run))["status"] for run in ("r-4", "r-5", "r-6")] == ["completed", "running", "queued"]
    await alice.post(f"/runs/{thread}/cancel?runId=r-6", b"")
    await alice.post(f"/runs/{thread}/cancel?runId=r-5", b"")
    await alice.events(thread, "r-5")
    assert [(await status(run))["status"] for run in ("r-5", "r-6")] == ["cancelled", "cancelled"]
    assert await status("r-1") == ended
    unknown = await alice.get(f"/runs/{thread}?runId=never")
    assert unknown.json == problem(404, "AGENT_RUN_NOT_FOUND", "this thread has no such run")
    bob = RunServiceClient(app_server.connection, app_server.key("bob"))
    assert (await bob.get(f"/runs/{thread}")).status == 403


@requirement("runs:status:get")
async def test_a_thread_in_which_nothing_ran_yet_has_no_run(app_server: AppServer) -> None:
    thread = (await AapClient(app_server.connection, app_server.key("alice")).create("rehearsal")).id
    answer = await RunServiceClient(app_server.connection, app_server.key("alice")).get(f"/runs/{thread}")
    assert answer.json == problem(404, "AGENT_RUN_NOT_FOUND", "this thread has no run yet")


@requirement("runs:history:zone")
async def test_days_are_those_of_the_zone_that_a_client_names(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice, thread = RunServiceClient(server.connection, server.key("alice")), new_thread()
        moment = datetime.fromisoformat("2027-03-15T23:30:00+00:00")
        server.clock.advance(seconds=(moment - server.clock.now()).total_seconds())
        await alice.play(thread, "hello")

        async def day(zone: str) -> Json:
            return (await alice.get(f"/history?threadId={thread}&timezone={zone}")).json["day"]

        assert (await alice.history(thread))["day"] == await day("profile") == "2027-03-15"
        assert (await day("Asia/Tokyo"), await day("America/Los_Angeles")) == ("2027-03-16", "2027-03-15")
        settings = b'{"settings":{"timezone":"Europe/Berlin"}}'
        await alice.request("PATCH", "/profile", settings, content_type="application/json")
        assert await day("profile") == "2027-03-16"
        assert (await alice.get("/history?timezone=Mars/Olympus")).status == 422
