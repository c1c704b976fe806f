"""What a server's users have: exported from its stores, and over two protocols. Releases run it too."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from dragoman.core.events import encode
from dragoman.ports.stores import Stores
from tests.protocols.aap.client import AapClient

Json = Any
PAGE = 500


async def export_stores(stores: Stores) -> Json:
    """Everything that is stored, as JSON: the logs by session, and what belongs to users."""
    logs: dict[str, list[Json]] = {}
    kept: dict[str, list[str]] = {}
    last = None
    while page := await stores.archive.sessions(last, PAGE):
        for session in page:
            last = session.session_id
            events = await stores.log.events(last, 0, PAGE * 10)
            logs[last] = [
                [each.seq, each.at.isoformat(), each.run_id, json.loads(encode(each.event))] for each in events
            ]
            values = await stores.log.kept(last, "", None, PAGE)
            kept[last] = sorted(f"{key}={value.hex()}" for key, value in values.items())
    budgets = await stores.token_usage.all()
    return {
        "logs": logs,
        "kept": {session_id: values for session_id, values in kept.items() if values},
        "keys": [[each.key_id, each.name, each.user, each.masked_key] for each in await stores.keys.all()],
        "profiles": msgspec.to_builtins(sorted(await stores.profiles.all(), key=lambda each: each.user)),
        "memories": [msgspec.to_builtins(each.texts) for each in await stores.archive.memories(0, PAGE)],
        "schedules": [each.schedule_id for each in await stores.schedules.all()],
        "shares": len(await stores.archive.shares()),
        "audit": [each.entry_id for each in await stores.audit.page(None, PAGE)],
        "tokens": {f"{counter.holder} {counter.period}": tokens for counter, tokens in budgets.items()},
        "blobs": sorted(await stores.blobs.names()),
    }


async def export_protocols(client: AapClient, sessions: Mapping[str, str]) -> Json:
    """The histories of sessions, by their names in the player, over AAP and over Blade."""
    return {
        name: {
            "aap": await _get(client, f"/aap/v3/sessions/{session_id}/history?type=full"),
            "blade": await _get(client, f"/api/sessions/{session_id}/messages"),
        }
        for name, session_id in sessions.items()
    }


async def _get(client: AapClient, path: str) -> Json:
    stream = await AapClient(client.connection, client.key, base="").open("GET", path)
    body = await stream.read()
    assert stream.status == 200, (path, body)
    return json.loads(body)
