"""What was said in Blade's sessions, and its branches, over REST. Thin; how turns are made stands in `projection`.

Source: specification, sections 5.3 and 5.4.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.admission import is_busy
from dragoman.core.refusals import Invalid, NotFound, SessionBusy
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade import branches
from dragoman.protocols.blade.projection.chat import saved_ratio
from dragoman.protocols.blade.projection.loader import (
    active_turns,
    branches_in,
    load_projection,
    nodes_of,
    remove_memories,
)
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.rest.access import open_owned_session, open_readable_session
from dragoman.protocols.blade.rest.bodies import decode, parse_int
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.rest.sessions import BODY_LIMIT, MAX_PAGE_OFFSET
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import sessions as told
from dragoman.protocols.kit.http import json_response, principal_of

COMPACTION_THRESHOLD = 0.8
"""The share of the window from which on a conversation is summed up (specification, section 10)."""


def routes(engine: Engine) -> list[Route]:
    """What answers about turns, tokens, checkpoints and branches."""
    door = _TurnHandlers(engine)
    return [
        Route("POST", "sessions/tokenize/prompt", door.tokenize_prompt),
        Route("POST", "sessions/tokenize/messages", door.tokenize_messages),
        Route("GET", "sessions/{session}/messages", door.messages),
        Route("GET", "sessions/{session}/history", door.history),
        Route("GET", "sessions/{session}/context-stats", door.context_stats),
        Route("POST", "sessions/{session}/compact", door.compact),
        Route("GET", "sessions/{session}/checkpoints", door.checkpoints),
        Route("POST", "sessions/{session}/rewind", door.rewind),
        Route("POST", "sessions/{session}/checkout", door.checkout),
        Route("POST", "sessions/{session}/switch-branch", door.switch_branch),
    ]


class _TurnHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # --- turns ------------------------------------------------------------------------------------------------------

    async def messages(self, request: Request) -> Response:
        async with open_readable_session(self._engine, request) as live:
            all_turns = active_turns(live, await self._load_visible_projection(live, request))
        offset = parse_int(request.query_params, "offset", 0, minimum=0, maximum=MAX_PAGE_OFFSET)
        limit = parse_int(request.query_params, "limit", MAX_PAGE_OFFSET, minimum=1, maximum=MAX_PAGE_OFFSET)
        return json_response([each.turn for each in all_turns[offset : offset + limit]])

    async def history(self, request: Request) -> Response:
        async with open_readable_session(self._engine, request) as live:
            projection = await load_projection(self._engine, live)
            active = active_turns(live, projection)
        nodes = nodes_of(projection, active)
        return json_response(
            {
                "nodes": nodes,
                "system_prompt_tokens": 0,
                "tools_tokens": self._tools_tokens(live),
                "tokenizer_model": "estimate",
            }
        )

    async def context_stats(self, request: Request) -> Response:
        async with open_readable_session(self._engine, request) as live:
            all_turns = active_turns(live, await load_projection(self._engine, live))
        words = sum(told.tokens_of(each.turn) for each in all_turns if not each.turn.archived)
        tools = self._tools_tokens(live)
        return json_response(
            {
                "model": live.state.settings.model,
                "context_window": 0,
                "used_tokens": words + tools,
                "system_prompt_tokens": 0,
                "tools_tokens": tools,
                "messages_tokens": words,
                "used_ratio": 0.0,
                "compaction_threshold": COMPACTION_THRESHOLD,
            }
        )

    async def compact(self, request: Request) -> Response:
        async with await open_owned_session(self._engine, request) as live:
            made = await self._engine.compact(live)
            seq = live.state.seq
        if made is None:
            return json_response({"detail": "there is nothing to sum up"}, 409)
        return json_response(
            {
                "status": "ok",
                "compaction_id": chat.compaction_id(seq),
                "archived_count": made.archived_count,
                "tokens_before": made.tokens_before,
                "tokens_after": made.tokens_after,
                "saved_ratio": saved_ratio(made.tokens_before, made.tokens_after),
                "trigger": made.trigger,
            }
        )

    async def tokenize_prompt(self, request: Request) -> Response:
        body = decode(told.TokenizePrompt, await json_body(request, BODY_LIMIT))
        count = told.tokens_of_value(body.prompt)
        return json_response({"token_count": count, "model": body.model, "approximate": True})

    async def tokenize_messages(self, request: Request) -> Response:
        body = decode(told.TokenizeMessages, await json_body(request, BODY_LIMIT))
        if len(body.messages) > told.MAX_TOKENIZED_MESSAGES:
            raise Invalid(f"must be at most {told.MAX_TOKENIZED_MESSAGES}", path="messages")
        counts = [told.tokens_of_value(each) for each in body.messages]
        return json_response(
            {"token_count": sum(counts), "per_message": counts, "model": body.model, "approximate": True}
        )

    # --- branches ---------------------------------------------------------------------------------------------------

    async def checkpoints(self, request: Request) -> Response:
        async with open_readable_session(self._engine, request) as live:
            projection = await load_projection(self._engine, live)
            active = {each.turn.turn_id for each in active_turns(live, projection)}
        return json_response(
            [
                told.checkpoint_of(each, active=each.turn.turn_id in active)
                for each in projection.turns
                if branches.is_checkpoint(each)
            ]
        )

    async def rewind(self, request: Request) -> Response:
        body = decode(told.CheckpointRequest, await json_body(request, BODY_LIMIT))
        async with await open_owned_session(self._engine, request) as live:
            before = await load_projection(self._engine, live)
            place = find_checkpoint(before, body.checkpoint_id)
            active = active_turns(live, before)
            if place not in active:
                raise NotFound("the checkpoint is on another branch: switch to that first")
            assert place.rewind_seq is not None, "a checkpoint is a user's turn"
            await self._engine.rewind(live, place.rewind_seq)
            after = active_turns(live, await load_projection(self._engine, live))
        left = {each.turn.turn_id for each in after}
        return json_response(
            {
                "session_id": chat.public_session_id(live.state.session_id),
                "checkpoint_id": body.checkpoint_id,
                "leaf_entry_id": after[-1].turn.id if after else None,
                "removed_turn_ids": [each.turn.turn_id for each in active if each.turn.turn_id not in left],
                "message": told.text_of(place.turn),
            }
        )

    async def checkout(self, request: Request) -> Response:
        body = decode(told.Checkout, await json_body(request, BODY_LIMIT))
        async with open_readable_session(self._engine, request) as live:
            projection = await self._load_visible_projection(live, request)
        place = find_checkpoint(projection, body.checkpoint_id)
        home = branches.newest_branch_with(branches_in(projection), place)
        on_branch = branches.turns_in(home, projection.turns)
        found = branches.turns_until(on_branch, place, include_turn=body.position == "turn_end")
        return json_response(
            {
                "checkpoint_id": body.checkpoint_id,
                "position": body.position,
                "turns": [each.turn for each in found],
            }
        )

    async def switch_branch(self, request: Request) -> Response:
        body = decode(told.CheckpointRequest, await json_body(request, BODY_LIMIT))
        async with await open_owned_session(self._engine, request) as live:
            projection = await load_projection(self._engine, live)
            place = find_checkpoint(projection, body.checkpoint_id)
            if is_busy(live.state):
                raise SessionBusy("a run of this session is active")
            last = live.durable_cursor.seq
            home = branches.newest_branch_with(branches.branches_of(projection.branch_marks, last), place)
            if home.end < last:
                await self._engine.switch_branch(live, branches.hidden_ranges_after_switch(home, last))
        leaf = branches.turns_in(home, projection.turns)[-1]
        return json_response(
            {"session_id": chat.public_session_id(live.state.session_id), "leaf_entry_id": leaf.turn.id}
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    async def _load_visible_projection(self, live: SessionView, request: Request) -> Projection:
        """A session's turns as the caller may see them: memories are the owner's."""
        projection = await load_projection(self._engine, live)
        if live.state.owner != principal_of(request).user:
            remove_memories(projection.turns)
        return projection

    def _tools_tokens(self, live: SessionView) -> int:
        agent = self._engine.agents.get(live.state.agent)
        if agent is None:
            return 0
        return sum(told.tokens_of_value(msgspec.to_builtins(tool.spec)) for tool in agent.spec.tools)


def find_checkpoint(projection: Projection, name: str) -> TurnBuilder:
    """The user's turn of a checkpoint. Raises NotFound."""
    seq = chat.parse_checkpoint_id(name)
    found = next((each for each in projection.turns if each.first_seq == seq and branches.is_checkpoint(each)), None)
    if found is None:
        raise NotFound("there is no such checkpoint")
    return found
