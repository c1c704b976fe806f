"""Uploads, signed links, recordings and forms."""

import asyncio
import re
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman import Image, Run, agent, tool
from dragoman.core.ids import UserId
from dragoman.core.upload_links import Link, Links
from dragoman.core.uploads import folder_of, is_path_of, path_for, sniff_image_type, wav_data_size
from dragoman.models.registry import ModelNameError
from dragoman.models.transcription import OpenAITranscriber, resolve_transcriber
from dragoman.protocols.kit.multipart import InvalidForm, Part, read_form
from tests.protocols.agui.endpoint import Endpoint
from tests.protocols.agui.run_service import PNG, RunServiceClient, new_thread, problem, run_input
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, SocketServer

Json = Any
ALICE, BOB = UserId("alice"), UserId("bob")
PICTURES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + bytes(20),
    "image/gif": b"GIF89a" + bytes(20),
    "image/webp": b"RIFF\x10\x00\x00\x00WEBPVP8 " + bytes(20),
    "image/heic": b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(20),
    "image/avif": b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00avifmif1miaf" + bytes(20),
}
LIMIT = 10 * 1024 * 1024


def wav(sound: bytes = b"\0\0" * 80) -> bytes:
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    body = b"WAVE" + head + struct.pack("<4sI", b"data", len(sound)) + sound
    return struct.pack("<4sI", b"RIFF", len(body)) + body


@pytest.fixture
def alice(app_server: AppServer) -> RunServiceClient:
    return RunServiceClient(app_server.connection, app_server.key("alice"))


@pytest.fixture
def bob(app_server: AppServer) -> RunServiceClient:
    return RunServiceClient(app_server.connection, app_server.key("bob"))


@pytest.fixture
def visitor(app_server: AppServer) -> RunServiceClient:
    """Somebody without a key, who has a link."""
    return RunServiceClient(app_server.connection, None, base="")


def place_of(url: str) -> str:
    """A link without the server's address."""
    assert url.startswith("http://127.0.0.1:8000/api/v1/agent/attachments/content/dragoman/agent-inputs/")
    return url.removeprefix("http://127.0.0.1:8000")


# --- uploads ----------------------------------------------------------------------------------------------------------


@requirement("runs:files:upload", "runs:files:content")
@pytest.mark.parametrize("kind", PICTURES)
async def test_an_image_is_stored_and_served_by_its_link(
    alice: RunServiceClient, visitor: RunServiceClient, kind: str
) -> None:
    thread, content = new_thread(), PICTURES[kind]
    reply = await alice.upload(content, kind, threadId=thread, runId="r-1")
    assert reply.status == 201, reply
    stored = reply.json
    assert list(stored) == ["bucket", "path", "mime_type", "url"]
    assert (stored["bucket"], stored["mime_type"]) == ("dragoman", kind)
    assert stored["path"].startswith(f"agent-inputs/alice/{thread}/r-1/")
    reply = await visitor.get(place_of(stored["url"]))
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, kind, content)
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert (await visitor.request("HEAD", place_of(stored["url"]))).status == 200
    assert (await visitor.request("POST", place_of(stored["url"]))).status == 405


@requirement("runs:files:content")
async def test_a_link_works_unchanged_in_an_ordinary_http_client(socket_server: SocketServer) -> None:
    alice = RunServiceClient(socket_server.connection, socket_server.key("alice"))
    url = (await alice.upload()).json["url"]
    async with httpx2.AsyncClient() as browser:
        reply = await browser.get(url)
        assert (reply.status_code, reply.content) == (200, PNG)
        head = await browser.head(url)
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(PNG)), b"")


@requirement("runs:files:path")
async def test_an_upload_without_a_thread_has_a_folder_of_its_own(alice: RunServiceClient) -> None:
    assert (await alice.upload()).json["path"].startswith("agent-inputs/alice/-/-/")
    odd = (await alice.upload(runId="../../bob")).json["path"]
    assert odd.startswith("agent-inputs/alice/-/_")
    assert ".." not in odd


@requirement("runs:files:own")
async def test_a_user_lists_and_deletes_their_own_uploads(alice: RunServiceClient, bob: RunServiceClient) -> None:
    free, bound = (await alice.upload()).json, (await alice.upload(threadId=new_thread())).json
    theirs = (await bob.upload()).json
    listed = (await alice.get("/attachments")).json["items"]
    assert [each | {"url": ""} for each in listed[:2]] == [bound | {"url": ""}, free | {"url": ""}]
    assert all(each["path"].startswith("agent-inputs/alice/") for each in listed)
    refused = await alice.request("DELETE", f"/attachments?path={theirs['path']}")
    assert (refused.status, refused.json["code"]) == (403, "AGENT_FORBIDDEN")
    for _ in range(2):
        assert (await alice.request("DELETE", f"/attachments?path={bound['path']}")).status == 204
    assert [each["path"] for each in (await alice.get("/attachments")).json["items"]][:1] == [free["path"]]
    assert [each["path"] for each in (await bob.get("/attachments")).json["items"]][:1] == [theirs["path"]]


@requirement("runs:files:type")
async def test_a_file_that_is_not_of_its_declared_type_is_415(alice: RunServiceClient) -> None:
    for content, kind in (
        (PNG, "image/jpeg"),
        (PNG, "image/svg+xml"),
        (PNG, "application/octet-stream"),
        (b"<svg/>", "image/png"),
        (b"RIFF\x10\x00\x00\x00WAVE", "image/webp"),
    ):
        reply = await alice.upload(content, kind)
        assert (reply.status, reply.json["code"]) == (415, "AGENT_ATTACHMENT_TYPE")


@requirement("runs:files:size")
async def test_a_file_of_ten_mebibytes_is_accepted_and_one_byte_more_is_413(alice: RunServiceClient) -> None:
    fits = PNG + bytes(LIMIT - len(PNG))
    assert (await alice.upload(fits)).status == 201
    for much in (fits + b"x", fits + bytes(100_000)):
        reply = await alice.upload(much)
        assert (reply.status, reply.json["code"]) == (413, "AGENT_ATTACHMENT_TOO_LARGE")
    empty = await alice.upload(b"")
    assert (empty.status, empty.json) == (422, problem(422, "AGENT_ATTACHMENT_EMPTY", "the file is empty"))


@requirement("runs:files:form")
async def test_anything_but_a_form_with_one_file_is_422(alice: RunServiceClient) -> None:
    for body, kind in (
        (b"", "multipart/form-data; boundary=x"),
        (b"{}", "application/json"),
        (b"--x--\r\n", "multipart/form-data; boundary=x"),
        (b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--x--', "multipart/form-data; boundary=x"),
    ):
        reply = await alice.request("POST", "/attachments", body, content_type=kind)
        assert (reply.status, reply.json["code"]) == (422, "AGENT_ATTACHMENT_INVALID")
    wrong = await alice.upload(threadId="x")
    assert (wrong.status, wrong.json["code"]) == (422, "AGENT_SESSION_ID_INVALID")
    assert (await alice.upload(runId="r" * 129)).json["code"] == "AGENT_INVALID_RUN_ID"


@requirement("runs:files:deleted-with-thread")
async def test_deleting_a_thread_deletes_its_uploads(alice: RunServiceClient, visitor: RunServiceClient) -> None:
    thread = new_thread()
    link = place_of((await alice.upload(threadId=thread)).json["url"])
    other = place_of((await alice.upload()).json["url"])
    await alice.play(thread)
    await alice.request("DELETE", f"/sessions/{thread}")
    assert (await visitor.get(link)).json == problem(404, "AGENT_ATTACHMENT_NOT_FOUND", "the file is gone")
    assert (await visitor.get(other)).status == 200


@requirement("runs:files:deleted-with-thread")
async def test_deleting_a_thread_that_never_ran_deletes_its_uploads(
    alice: RunServiceClient, bob: RunServiceClient, visitor: RunServiceClient
) -> None:
    thread = new_thread()
    link = place_of((await alice.upload(threadId=thread)).json["url"])
    assert (await bob.request("DELETE", f"/sessions/{thread}")).status == 204
    assert (await visitor.get(link)).status == 200
    assert (await alice.request("DELETE", f"/sessions/{thread}")).status == 204
    assert (await visitor.get(link)).status == 404


@requirement("runs:links:public-url")
async def test_links_follow_the_configured_path_of_the_service(open_app_server: AppServerFactory) -> None:
    async with open_app_server(run_service_path="/other/place") as server:
        alice = RunServiceClient(server.connection, server.key("alice"), base="/other/place")
        url = (await alice.upload()).json["url"]
        assert url.startswith("http://127.0.0.1:8000/other/place/attachments/content/")
        visitor = RunServiceClient(server.connection, None, base="")
        assert (await visitor.get(url.removeprefix("http://127.0.0.1:8000"))).body == PNG


# --- links ------------------------------------------------------------------------------------------------------------

BAD_LINK = problem(403, "AGENT_FORBIDDEN", "this link is not valid or has expired")


@requirement("runs:links:signed-url")
async def test_only_the_owner_gets_a_new_link(
    alice: RunServiceClient, bob: RunServiceClient, visitor: RunServiceClient
) -> None:
    stored = (await alice.upload()).json
    query = f"/attachments/signed-url?bucket=dragoman&path={stored['path']}"
    fresh = (await alice.get(query)).json
    assert list(fresh) == ["bucket", "path", "url"]
    assert (await visitor.get(place_of(fresh["url"]))).body == PNG
    for who, path in (
        (bob, query),
        (alice, query.replace("bucket=dragoman", "bucket=other")),
        (alice, query.replace("/alice/", "/bob/")),
        (alice, query.replace("/alice/", "/alice/../bob/")),
        (alice, query.replace("/alice/", "%2Falice%2F..%2Fbob%2F")),
        (alice, "/attachments/signed-url?bucket=dragoman&path=/etc/passwd"),
        (alice, "/attachments/signed-url?bucket=dragoman&path=sessions/x"),
    ):
        reply = await who.get(path)
        assert (reply.status, reply.json["code"]) == (403, "AGENT_FORBIDDEN"), path
    other = await alice.get(query.replace("bucket=dragoman", "bucket=other"))
    assert other.json["detail"] == "there is no such bucket: it is 'dragoman'"
    for query, name in (("", "bucket"), ("?path=x", "bucket"), ("?bucket=dragoman", "path")):
        assert (await alice.get(f"/attachments/signed-url{query}")).json == problem(
            422, "AGENT_RUN_INPUT_INVALID", f"the parameter {name} is required"
        )


@requirement("runs:receipt:new-link", "runs:aliases:queries")
async def test_a_run_with_a_new_link_to_the_same_image_is_the_same_run(open_app_server: AppServerFactory) -> None:
    def body(url: str) -> Json:
        return run_input(thread, [{"type": "binary", "mimeType": "image/png", "url": url}])

    thread = new_thread()
    async with open_app_server(manual_clock=True) as server:
        alice = RunServiceClient(server.connection, server.key("alice"))
        stored = (await alice.upload(thread_id=thread)).json
        assert f"/{thread}/" in stored["path"]
        server.clock.advance(seconds=1)
        fresh = (await alice.get(f"/attachments/signed-url?bucket=dragoman&path={stored['path']}")).json["url"]
        assert fresh != stored["url"]
        other = (await alice.upload(threadId=thread)).json["url"]
        first = await alice.submit(body(stored["url"]))
        listed = await alice.get(f"/history?thread_id={thread}")
        assert (listed.json["threadId"], (await alice.get("/history?thread_id=x")).status) == (thread, 422)
        assert await alice.submit(body(fresh)) == {**first, "created": False}
        assert (await alice.post("/runs", body(other))).status == 409


@requirement("runs:links:every-byte")
async def test_a_link_with_any_byte_changed_is_refused(app_server: AppServer, alice: RunServiceClient) -> None:
    stored = (await alice.upload()).json
    url, thread = stored["url"], new_thread()
    at = len("http://127.0.0.1:8000")
    for place in range(len(url)):
        for flipped in {chr(ord(url[place]) ^ bit) for bit in (1, 2, 4, 8, 16, 32, 64)} - {"\x7f"}:
            changed = url[:place] + flipped + url[place + 1 :]
            body = run_input(thread, [{"type": "binary", "mimeType": "image/png", "url": changed}])
            if flipped.isprintable() and flipped not in "?#" and place >= at:
                stream = await app_server.connection.open("GET", changed[at:])
                await stream.read()
                assert stream.status in (401, 403, 404), changed
            if place % 7 == ord(flipped) % 7:
                reply = await alice.post("/runs", body)
                assert reply.json["detail"] == "binary content url is not a valid signed URL", changed
    links, text = (
        Links(b"key"),
        Links(b"key").make("https://here/api", path_for(ALICE, None, None, "a-1", "image/png"), 99),
    )
    assert links.read(text) == Link(path_for(ALICE, None, None, "a-1", "image/png"), 99)
    for place in range(len(text)):
        for bit in range(8):
            assert links.read(text[:place] + chr(ord(text[place]) ^ 1 << bit) + text[place + 1 :]) is None
        assert links.read(text[:place] + text[place + 1 :]) is None
    assert links.read(text + "\n") is None
    assert Links(b"other").read(text) is None


@requirement("runs:links:expiry")
async def test_a_link_is_valid_for_an_hour(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice, visitor = (
            RunServiceClient(server.connection, server.key("alice")),
            RunServiceClient(server.connection, None, base=""),
        )
        url = (await alice.upload()).json["url"]
        picture = [{"type": "binary", "mimeType": "image/png", "url": url}]
        server.clock.advance(seconds=3600)
        assert (await visitor.get(place_of(url))).status == 200
        first = await alice.submit(run_input(new_thread(), picture))
        server.clock.advance(seconds=1)
        assert (await visitor.get(place_of(url))).json == BAD_LINK
        late = await alice.post("/runs", run_input(new_thread(), picture))
        assert late.json["detail"] == "binary content url is not a valid signed URL"
        again = await alice.submit(run_input(first["threadId"], picture))
        assert again == {**first, "created": False}, "a repeat gets the same answer although its link has expired"


@requirement("runs:links:owner")
async def test_a_link_of_another_user_is_no_attachment(alice: RunServiceClient, bob: RunServiceClient) -> None:
    url = (await alice.upload()).json["url"]
    reply = await bob.post("/runs", run_input(new_thread(), [{"type": "binary", "mimeType": "image/png", "url": url}]))
    assert reply.json["detail"] == "binary content url is not a valid signed URL"


@tool
def show(path: str) -> list[Image]:
    """Show a picture."""
    return [Image(f"upload:{path}")]


@agent(tools=[show])
async def leaky(run: Run) -> str:
    """Sends the image that it is asked for."""
    await run.call(show, path=run.text)
    return "shown"


@requirement("runs:links:owner")
async def test_an_upload_reference_in_a_text_is_not_resolved(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server(agents=(leaky,)) as server:
        path = (await RunServiceClient(server.connection, server.key("alice")).upload()).json["path"]
        bob, thread = RunServiceClient(server.connection, server.key("bob")), new_thread()
        await bob.play(thread, path, forwardedProps={"agent_type": "leaky"})
        refused = await server.aap_client("bob").post(
            f"/sessions/{thread}/turns",
            {"messages": [{"role": "user", "content": [{"type": "image", "url": f"upload:{path}"}]}]},
        )
        assert (refused.status, refused.json["code"]) == (400, "image_unsupported")
        messages = await Endpoint(server.connection, server.key("bob"), agent="leaky").messages(thread)
        assert f"upload:{path}" in str(messages)
        assert "iVBOR" not in str(messages)


@requirement("runs:links:public-url")
async def test_links_use_the_public_url(open_app_server: AppServerFactory) -> None:
    async with open_app_server(public_url="https://agents.example.org/") as server:
        alice, visitor = (
            RunServiceClient(server.connection, server.key("alice")),
            RunServiceClient(server.connection, None, base=""),
        )
        url = (await alice.upload()).json["url"]
        assert url.startswith("https://agents.example.org/api/v1/agent/attachments/content/dragoman/")
        assert (await visitor.get(url.removeprefix("https://agents.example.org"))).body == PNG


@requirement("runs:links:no-traversal")
@pytest.mark.parametrize(
    "path",
    [
        "dragoman/agent-inputs/alice/-/-/../../../../secrets.key",
        "dragoman/agent-inputs/alice/-/-/%2e%2e/x.png",
        "dragoman/agent-inputs/alice%2F-/-/x.png",
        "dragoman//etc/passwd",
        "other/agent-inputs/alice/-/-/x.png",
        "",
    ],
)
async def test_paths_that_lead_outside_are_refused(visitor: RunServiceClient, path: str) -> None:
    reply = await visitor.get(f"/api/v1/agent/attachments/content/{path}?expires=9999999999&signature={'0' * 64}")
    assert (reply.status, reply.json) == (403, BAD_LINK)


@requirement("runs:files:path")
@given(st.text(min_size=1), st.text(min_size=1), st.none() | st.text(), st.none() | st.text())
@settings(max_examples=300, deadline=None)
def test_every_name_has_a_folder_of_its_own(one: str, two: str, thread: str | None, run: str | None) -> None:
    one, two = (each.encode("utf-8", "replace").decode() for each in (one, two))
    thread, run = (None if each is None else each.encode("utf-8", "replace").decode() for each in (thread, run))
    path = path_for(UserId(one), thread, run, "0a-1", "image/gif")
    assert is_path_of(UserId(one), path)
    assert is_path_of(UserId(two), path) == (one == two)
    assert (folder_of(one) == folder_of(two)) == (one == two)


@requirement("runs:files:type")
@given(st.binary(max_size=64))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_known_image_type_or_none(content: bytes) -> None:
    assert sniff_image_type(content) in {None, *PICTURES}
    wav_data_size(content)


# --- forms ------------------------------------------------------------------------------------------------------------


@requirement("runs:files:form")
@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=5), st.binary(max_size=200)), max_size=5))
@settings(max_examples=200, deadline=None)
def test_the_fields_of_a_form_are_read_back(fields: list[tuple[str, bytes]]) -> None:
    body = b"".join(
        f'--bOuNd\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'.encode() + content + b"\r\n"
        for name, content in fields
    )
    if any(b"--bOuNd" in content for _, content in fields) or not fields:
        return
    found = read_form('Multipart/Form-Data; charset=x; boundary="bOuNd"', b"preamble\r\n" + body + b"--bOuNd--")
    assert found == [Part(name, content, None, None) for name, content in fields]


@requirement("runs:files:form")
@given(st.text(max_size=80), st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_form_or_are_refused(kind: str, body: bytes) -> None:
    for content_type in (kind, "multipart/form-data; boundary=a"):
        with suppress(InvalidForm):
            read_form(content_type, body.replace(b"b", b"\r\n--a\r\n"))


# --- recordings -------------------------------------------------------------------------------------------------------


@requirement("runs:transcribe:input")
async def test_an_invalid_recording_is_400(alice: RunServiceClient) -> None:
    async def code(content: bytes) -> tuple[int, str]:
        reply = await alice.send_form("/transcribe", content, "audio/wav")
        return reply.status, reply.json["code"]

    assert await code(b"") == (400, "AGENT_AUDIO_EMPTY")
    assert await code(wav(b"")) == (400, "AGENT_AUDIO_EMPTY")
    assert await code(PNG) == (400, "AGENT_AUDIO_UNSUPPORTED_FORMAT")
    assert await code(b"RIFF") == (400, "AGENT_AUDIO_UNSUPPORTED_FORMAT")
    assert await code(wav(bytes(LIMIT))) == (400, "AGENT_AUDIO_TOO_LARGE")
    assert await code(wav(bytes(LIMIT + 100_000))) == (400, "AGENT_AUDIO_TOO_LARGE")
    reply = await alice.request("POST", "/transcribe", b"x", content_type="audio/wav")
    assert (reply.status, reply.json["code"]) == (400, "AGENT_AUDIO_UNSUPPORTED_FORMAT")


@requirement("runs:transcribe:no-backend")
async def test_without_a_backend_it_is_502(alice: RunServiceClient) -> None:
    reply = await alice.send_form("/transcribe", wav(), "audio/wav")
    expected = problem(502, "AGENT_ASR_UNAVAILABLE", "this server has no transcription backend")
    assert (reply.status, reply.json) == (502, expected)


@dataclass
class Backend:
    """A real OpenAI-compatible server on loopback."""

    url: str
    requests: list[tuple[bytes, bytes]]


@asynccontextmanager
async def backend(status: int, body: bytes) -> AsyncIterator[Backend]:
    """One that answers every request so."""
    requests: list[tuple[bytes, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: ([0-9]+)", head, re.IGNORECASE)
        assert length is not None
        requests.append((head, await reader.readexactly(int(length[1]))))
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(body)) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Backend(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", requests)


@requirement("runs:transcribe:text")
async def test_a_recording_goes_to_the_backend_and_its_text_comes_back(open_app_server: AppServerFactory) -> None:
    async with (
        backend(200, '{"text":"Grüße","more":1}'.encode()) as asr,
        open_app_server(transcription_model=f"openai-compatible:whisper-1@{asr.url}") as server,
    ):
        reply = await RunServiceClient(server.connection, server.key("alice")).send_form(
            "/transcribe", wav(), "audio/wav"
        )
        assert (reply.status, reply.json) == (200, {"text": "Grüße"})
        ((head, body),) = asr.requests
        assert head.startswith(b"POST /v1/audio/transcriptions HTTP/1.1")
        kind = re.search(rb"content-type: (.*)", head, re.IGNORECASE)
        assert kind is not None
        parts = read_form(kind[1].strip().decode(), body)
        assert {part.name: part.content for part in parts} == {
            "model": b"whisper-1",
            "response_format": b"json",
            "file": wav(),
        }


@requirement("runs:transcribe:backend-fails")
@pytest.mark.parametrize(
    ("status", "body"), [(500, b"secret"), (401, b"{}"), (200, b"x"), (200, b"{}"), (200, b"\xff")]
)
async def test_a_failing_backend_is_502_without_its_message(
    open_app_server: AppServerFactory, status: int, body: bytes
) -> None:
    async with (
        backend(status, body) as asr,
        open_app_server(transcription_model=f"openai-compatible:w@{asr.url}") as server,
    ):
        reply = await RunServiceClient(server.connection, server.key("alice")).send_form(
            "/transcribe", wav(), "audio/wav"
        )
        expected = problem(502, "AGENT_ASR_UNAVAILABLE", "the transcription backend failed")
        assert (reply.status, reply.json) == (502, expected)


@requirement("runs:transcribe:backend-fails")
async def test_an_unreachable_backend_is_502(open_app_server: AppServerFactory) -> None:
    async with backend(200, b"") as asr:
        url = asr.url
    async with open_app_server(transcription_model=f"openai-compatible:w@{url}") as server:
        reply = await RunServiceClient(server.connection, server.key("alice")).send_form(
            "/transcribe", wav(), "audio/wav"
        )
        assert (reply.status, reply.json["code"]) == (502, "AGENT_ASR_UNAVAILABLE")


@requirement("runs:transcribe:names")
def test_a_transcriber_is_named_like_a_model() -> None:
    assert isinstance(resolve_transcriber("openai-compatible:w@http://127.0.0.1:1/v1", {}), OpenAITranscriber)
    assert isinstance(resolve_transcriber("openai:whisper-1", {"OPENAI_API_KEY": "k"}), OpenAITranscriber)
    for name in ("openai:whisper-1", "openai:", "whisper", "openai-compatible:x", "google:x"):
        with pytest.raises(ModelNameError):
            resolve_transcriber(name, {})
