"""Blade's sessions, messages and branches over REST. Thin: decode, ask the engine, encode. Source: 5.2 to 5.4."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.admission import is_busy
from dragoman.core.events import SettingsChange
from dragoman.core.inputs import Create
from dragoman.core.refusals import Invalid, NotFound, SessionBusy
from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.engine.live import LiveSession
from dragoman.protocols._http import caller_of, json_answer, read_body, require_json
from dragoman.protocols.blade import branches, translate, wire
from dragoman.protocols.blade import sessions_wire as told
from dragoman.protocols.blade.access import owned, readable
from dragoman.protocols.blade.bodies import decode, number, text
from dragoman.protocols.blade.chat import saved_ratio
from dragoman.protocols.blade.folded import folded, nodes_of, shown, without_memories
from dragoman.protocols.blade.projection import Projection
from dragoman.protocols.blade.rest import Route
from dragoman.protocols.blade.rooms import Rooms
from dragoman.protocols.blade.turns import Growing

BODY_LIMIT = 4 * 1024 * 1024
PAGE, LARGEST_PAGE = 20, 200
MOST = 999_999_999
THRESHOLD = 0.8
"""The share of the window from which on a conversation is summed up (specification, section 10)."""


def routes(engine: Engine, rooms: Rooms, *, remembers: bool) -> list[Route]:
    """What answers below `/api/sessions`.

    Args:
        engine: the engine.
        rooms: the sockets, which are told of changes.
        remembers: whether new sessions use memories where their maker does not say.
    """
    door = _Door(engine, rooms, remembers)
    return [
        Route("POST", "sessions", door.create),
        Route("GET", "sessions", door.page),
        Route("POST", "sessions/tokenize/prompt", door.tokenize_prompt),
        Route("POST", "sessions/tokenize/messages", door.tokenize_messages),
        Route("GET", "sessions/{session}", door.show),
        Route("PATCH", "sessions/{session}", door.rename),
        Route("DELETE", "sessions/{session}", door.delete),
        Route("PUT", "sessions/{session}/env", door.put_env),
        Route("PATCH", "sessions/{session}/pin", door.pin),
        Route("PATCH", "sessions/{session}/sharing", door.share),
        Route("PATCH", "sessions/{session}/memory", door.remember),
        Route("GET", "sessions/{session}/messages", door.messages),
        Route("GET", "sessions/{session}/history", door.history),
        Route("GET", "sessions/{session}/context-stats", door.context),
        Route("POST", "sessions/{session}/compact", door.compact),
        Route("GET", "sessions/{session}/checkpoints", door.checkpoints),
        Route("POST", "sessions/{session}/rewind", door.rewind),
        Route("POST", "sessions/{session}/checkout", door.checkout),
        Route("POST", "sessions/{session}/switch-branch", door.switch),
    ]


class _Door:
    def __init__(self, engine: Engine, rooms: Rooms, remembers: bool) -> None:
        self._engine = engine
        self._rooms = rooms
        self._remembers = remembers

    # --- sessions ---------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        body = decode(told.CreateSession, await _body(request))
        agent = self._engine.agent(body.solution_id or self._engine.default_agent)
        change = SettingsChange(
            title=(body.intent or "").strip()[: told.INTENT] or None,  # clients send whole prompts
            model=told.optional(body.model, "model"),
            variant=told.optional(body.biz_role_id, "biz_role_id"),
            env=told.checked_env(body.env) if body.env else None,
            persistent=body.is_persistent,
        )
        asked = Create(
            door=translate.DOOR,
            agent=agent.spec.name,
            tools=translate.tools_without(agent.spec, body.disable_tools or ()) or "all",
            options=body.options or {},
            memory_enabled=self._memory(agent.spec) if body.memory_enabled is None else body.memory_enabled,
            change=change,
        )
        live = await self._engine.create(caller_of(request).user, asked)
        return json_answer(told.Created(wire.shown_session(live.state.session_id)))

    async def page(self, request: Request) -> Response:
        query = request.query_params
        limit = number(query, "limit", PAGE, least=1, most=LARGEST_PAGE)
        offset = number(query, "offset", 0, least=0, most=MOST)
        words = query.get("q", "").strip()
        if len(words) > told.WORDS:
            raise Invalid(f"must have at most {told.WORDS} characters", path="q")
        if query.get("template_id_prefix"):  # of a field that is always null here
            return json_answer(told.SessionPage(items=(), total=0, limit=limit, offset=offset))
        found = await self._engine.recent(caller_of(request).user, words, offset, limit)
        items = [translate.session_of(state, self._default) for state in found.states]
        return json_answer(
            told.SessionPage(
                items=items,
                total=found.total,
                limit=limit,
                offset=offset,
                content_match_truncated=found.is_partial,
            )
        )

    async def show(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            return self._detail(live, request)

    async def rename(self, request: Request) -> Response:
        body = decode(told.Rename, await _body(request))
        return await self._changed(request, SettingsChange(title=text(body.intent, "intent", told.INTENT)))

    async def put_env(self, request: Request) -> Response:
        body = decode(told.Environment, await _body(request))
        return await self._changed(request, SettingsChange(env=told.checked_env(body.env)))

    async def pin(self, request: Request) -> Response:
        body = decode(told.Pin, await _body(request))
        return await self._changed(request, SettingsChange(pinned=body.pinned))

    async def share(self, request: Request) -> Response:
        body = decode(told.Sharing, await _body(request))
        async with await owned(self._engine, request) as live:
            await self._engine.change(live, SettingsChange(shared=body.shared))
            if not body.shared:
                self._rooms.send_viewers_away(live.state.session_id)
        return json_answer({"shared": body.shared})

    async def remember(self, request: Request) -> Response:
        body = decode(told.Remembering, await _body(request))
        async with await owned(self._engine, request) as live:
            await self._engine.change(live, SettingsChange(memory_enabled=body.memory_enabled))
        return json_answer({"memory_enabled": body.memory_enabled})

    async def delete(self, request: Request) -> Response:
        async with await owned(self._engine, request) as live:
            await self._engine.delete(live)
        return json_answer({"deleted": True})

    # --- turns ------------------------------------------------------------------------------------------------------

    async def messages(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            all_turns = shown(live, await self._folded(live, request))
        offset = number(request.query_params, "offset", 0, least=0, most=MOST)
        limit = number(request.query_params, "limit", MOST, least=1, most=MOST)
        return json_answer([each.turn for each in all_turns[offset : offset + limit]])

    async def history(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            projection = await folded(self._engine, live)
            active = shown(live, projection)
        nodes = nodes_of(projection, active, MOST)
        return json_answer(
            {
                "nodes": nodes,
                "system_prompt_tokens": 0,
                "tools_tokens": self._tools_tokens(live),
                "tokenizer_model": "estimate",
            }
        )

    async def context(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            all_turns = shown(live, await folded(self._engine, live))
        words = sum(told.tokens_of(each.turn) for each in all_turns if not each.turn.archived)
        tools = self._tools_tokens(live)
        return json_answer(
            {
                "model": live.state.settings.model,
                "context_window": 0,
                "used_tokens": words + tools,
                "system_prompt_tokens": 0,
                "tools_tokens": tools,
                "messages_tokens": words,
                "used_ratio": 0.0,
                "compaction_threshold": THRESHOLD,
            }
        )

    async def compact(self, request: Request) -> Response:
        async with await owned(self._engine, request) as live:
            made = await self._engine.compact(live)
            seq = live.state.seq
        if made is None:
            return json_answer({"detail": "there is nothing to sum up"}, 409)
        return json_answer(
            {
                "status": "ok",
                "compaction_id": wire.compaction_id(seq),
                "archived_count": made.archived,
                "tokens_before": made.tokens_before,
                "tokens_after": made.tokens_after,
                "saved_ratio": saved_ratio(made.tokens_before, made.tokens_after),
                "trigger": made.trigger,
            }
        )

    async def tokenize_prompt(self, request: Request) -> Response:
        body = decode(told.TokenizePrompt, await _body(request))
        count = told.tokens_of_value(body.prompt)
        return json_answer({"token_count": count, "model": body.model, "approximate": True})

    async def tokenize_messages(self, request: Request) -> Response:
        body = decode(told.TokenizeMessages, await _body(request))
        if len(body.messages) > told.MESSAGES:
            raise Invalid(f"must be at most {told.MESSAGES}", path="messages")
        counts = [told.tokens_of_value(each) for each in body.messages]
        return json_answer(
            {"token_count": sum(counts), "per_message": counts, "model": body.model, "approximate": True}
        )

    # --- branches ---------------------------------------------------------------------------------------------------

    async def checkpoints(self, request: Request) -> Response:
        async with readable(self._engine, request) as live:
            projection = await folded(self._engine, live)
            active = {each.turn.turn_id for each in shown(live, projection)}
        return json_answer(
            [
                told.checkpoint_of(each, active=each.turn.turn_id in active)
                for each in projection.turns
                if branches.is_checkpoint(each)
            ]
        )

    async def rewind(self, request: Request) -> Response:
        body = decode(told.AtCheckpoint, await _body(request))
        async with await owned(self._engine, request) as live:
            before = await folded(self._engine, live)
            place = checkpoint_in(before, body.checkpoint_id)
            active = shown(live, before)
            if place not in active:
                raise NotFound("the checkpoint is on another branch: switch to that first")
            assert place.cut_at is not None, "a checkpoint is a user's turn"
            await self._engine.rewind(live, place.cut_at)
            after = shown(live, await folded(self._engine, live))
        left = {each.turn.turn_id for each in after}
        return json_answer(
            {
                "session_id": wire.shown_session(live.state.session_id),
                "checkpoint_id": body.checkpoint_id,
                "leaf_entry_id": after[-1].turn.id if after else None,
                "removed_turn_ids": [each.turn.turn_id for each in active if each.turn.turn_id not in left],
                "message": told.text_of(place.turn),
            }
        )

    async def checkout(self, request: Request) -> Response:
        body = decode(told.Checkout, await _body(request))
        async with readable(self._engine, request) as live:
            projection = await self._folded(live, request)
        place = checkpoint_in(projection, body.checkpoint_id)
        home = branches.newest_with(branches.branches_of(projection.branches, MOST), place)
        on_branch = branches.shown_in(home, projection.turns)
        found = branches.until(on_branch, place, whole_turn=body.position == "turn_end")
        return json_answer(
            {
                "checkpoint_id": body.checkpoint_id,
                "position": body.position,
                "turns": [each.turn for each in found],
            }
        )

    async def switch(self, request: Request) -> Response:
        body = decode(told.AtCheckpoint, await _body(request))
        async with await owned(self._engine, request) as live:
            projection = await folded(self._engine, live)
            place = checkpoint_in(projection, body.checkpoint_id)
            if is_busy(live.state):
                raise SessionBusy("a run of this session is active")
            last = live.durable.seq
            home = branches.newest_with(branches.branches_of(projection.branches, last), place)
            if home.end < last:
                await self._engine.switch(live, branches.hidden_for(home, last))
        leaf = branches.shown_in(home, projection.turns)[-1]
        return json_answer({"session_id": wire.shown_session(live.state.session_id), "leaf_entry_id": leaf.turn.id})

    # --- inside -----------------------------------------------------------------------------------------------------

    def _memory(self, spec: AgentSpec) -> bool:
        """Whether a new session uses memories, if its maker does not say: as its agent, else as set (rulings, 23)."""
        return self._remembers if spec.memory is None else spec.memory

    @property
    def _default(self) -> str:
        return self._engine.agent(self._engine.default_agent).spec.name

    def _detail(self, live: LiveSession, request: Request) -> Response:
        agent = self._engine.agents.get(live.state.agent)
        is_owner = live.state.owner == caller_of(request).user
        spec = None if agent is None else agent.spec
        return json_answer(translate.detail_of(live.state, spec, self._default, is_owner=is_owner))

    async def _folded(self, live: LiveSession, request: Request) -> Projection:
        """A session's turns as the caller may see them: memories are the owner's."""
        projection = await folded(self._engine, live)
        if live.state.owner != caller_of(request).user:
            without_memories(projection.turns)
        return projection

    async def _changed(self, request: Request, change: SettingsChange) -> Response:
        async with await owned(self._engine, request) as live:
            await self._engine.change(live, change)
            return self._detail(live, request)

    def _tools_tokens(self, live: LiveSession) -> int:
        agent = self._engine.agents.get(live.state.agent)
        if agent is None:
            return 0
        return sum(told.tokens_of_value(msgspec.to_builtins(tool.spec)) for tool in agent.spec.tools)


def checkpoint_in(projection: Projection, name: str) -> Growing:
    """The user's turn of a checkpoint. Raises NotFound."""
    seq = wire.read_checkpoint(name)
    found = next((each for each in projection.turns if each.first_seq == seq and branches.is_checkpoint(each)), None)
    if found is None:
        raise NotFound("there is no such checkpoint")
    return found


async def _body(request: Request) -> bytes:
    require_json(request)
    return await read_body(request, BODY_LIMIT)
