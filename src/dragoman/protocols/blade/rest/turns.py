"""The turns of Blade's sessions, and their branches, over REST. Source: specification, sections 5.3 and 5.4."""

from collections.abc import Mapping

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.branches import alternatives_of, branches_of, entries_until, newest_branch_with
from dragoman.core.content import JsonObject
from dragoman.core.ids import ROOT
from dragoman.core.principal import Principal
from dragoman.core.refusals import NotFound, SessionBusy
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.errors import NothingToCompact
from dragoman.protocols.blade.projection.chats import saved_ratio
from dragoman.protocols.blade.projection.loader import (
    active_turns,
    branches_in,
    load_projection,
    nodes_of,
    remove_memories,
)
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.rest.endpoints import MAX_OFFSET, PAGE_QUERY, SESSION, BladeHandlers, endpoint, parse_page
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import sessions as wire

BODY_LIMIT = 4 * 1024 * 1024
COMPACTION_THRESHOLD = 0.8
"""The share of the context window from which on a conversation is compacted (specification, section 10)."""
_CHECKPOINT = {"checkpoint_id": "cp_4"}


class TurnHandlers(BladeHandlers):
    """Handlers of turns, tokens, checkpoints and branches."""

    # --- turns ------------------------------------------------------------------------------------------------------

    @endpoint("GET", f"{SESSION}/messages", access="reader", parameters=PAGE_QUERY)
    async def messages(self, principal: Principal, session: SessionView, query: Mapping[str, str]) -> list[chat.Turn]:
        """List the turns of the active branch."""
        offset, limit = parse_page(query, default=MAX_OFFSET, maximum=MAX_OFFSET)
        projection = await self._load_visible(session, principal)
        for group in alternatives_of(branches_in(projection), projection.turns.all):
            versions = [chat.Alternative(chat.checkpoint_id(each.first_seq), each.turn.turn_id) for each in group]
            for each in group:
                each.turn.alternatives = versions
        turns = active_turns(session, projection)
        return [each.turn for each in turns[offset : offset + limit]]

    @endpoint("GET", f"{SESSION}/history", access="reader")
    async def history(self, session: SessionView) -> wire.History:
        """List the entries of all branches."""
        projection = await load_projection(self.engine, session)
        return wire.History(
            nodes=nodes_of(projection, active_turns(session, projection)), tools_tokens=self._tools_tokens(session)
        )

    @endpoint("GET", f"{SESSION}/context-stats", access="reader")
    async def context_stats(self, session: SessionView) -> JsonObject:
        """Estimate how full the context is."""
        turns = active_turns(session, await load_projection(self.engine, session))
        messages_tokens = sum(wire.tokens_of(each.turn) for each in turns if not each.turn.archived)
        tools_tokens = self._tools_tokens(session)
        used_tokens = messages_tokens + tools_tokens
        windows = (each.turn.context_window for each in reversed(turns) if each.turn.loop_id == ROOT)
        window = next((each for each in windows if each), 0)
        return {
            "model": session.state.settings.model,
            "context_window": window,
            "used_tokens": used_tokens,
            "system_prompt_tokens": 0,
            "tools_tokens": tools_tokens,
            "messages_tokens": messages_tokens,
            "used_ratio": min(1.0, round(used_tokens / window, 4)) if window else 0.0,
            "compaction_threshold": COMPACTION_THRESHOLD,
        }

    @endpoint("POST", f"{SESSION}/compact", access="owner")
    async def compact(self, session: SessionView) -> wire.CompactResult:
        """Compact the older part of a session."""
        compaction = await self.engine.compact(session)
        if compaction is None:
            raise NothingToCompact
        fields = ("archived_count", "tokens_before", "tokens_after", "trigger")
        return wire.CompactResult(
            compaction_id=chat.compaction_id(chat.public_session_id(session.state.session_id), session.state.seq),
            saved_ratio=saved_ratio(compaction.tokens_before, compaction.tokens_after),
            **{name: getattr(compaction, name) for name in fields},
        )

    @endpoint("POST", "/sessions/tokenize/prompt", example={"prompt": "hello"}, body_limit=BODY_LIMIT)
    async def tokenize_prompt(self, body: wire.TokenizePrompt) -> JsonObject:
        """Estimate the tokens of a text."""
        return {"token_count": wire.tokens_of_value(body.prompt), "model": body.model, "approximate": True}

    @endpoint("POST", "/sessions/tokenize/messages", example={"messages": ["hello"]}, body_limit=BODY_LIMIT)
    async def tokenize_messages(self, body: wire.TokenizeMessages) -> JsonObject:
        """Estimate the tokens of messages."""
        counts = [wire.tokens_of_value(each) for each in body.messages]
        return {"token_count": sum(counts), "per_message": counts, "model": body.model, "approximate": True}

    # --- branches ---------------------------------------------------------------------------------------------------

    @endpoint("GET", f"{SESSION}/checkpoints", access="reader")
    async def checkpoints(self, session: SessionView) -> list[wire.Checkpoint]:
        """List the checkpoints of a session."""
        projection = await load_projection(self.engine, session)
        active = set(active_turns(session, projection))
        return [wire.checkpoint_of(each, active=each in active) for each in projection.turns.all if each.is_checkpoint]

    @endpoint("POST", f"{SESSION}/rewind", access="owner", example=_CHECKPOINT)
    async def rewind(self, session: SessionView, body: wire.CheckpointRequest) -> wire.RewindResult:
        """Go back to before a user message."""
        before = await load_projection(self.engine, session)
        checkpoint = find_checkpoint(before, body.checkpoint_id)
        active = active_turns(session, before)
        if checkpoint not in active:
            raise NotFound("the checkpoint is on another branch: switch to that first")
        assert checkpoint.rewind_seq is not None, "a checkpoint is a user's turn"
        await self.engine.rewind(session, checkpoint.rewind_seq)
        after = active_turns(session, await load_projection(self.engine, session))
        remaining = {each.turn.turn_id for each in after}
        return wire.RewindResult(
            session_id=chat.public_session_id(session.state.session_id),
            checkpoint_id=body.checkpoint_id,
            leaf_entry_id=after[-1].turn.id if after else None,
            removed_turn_ids=[each.turn.turn_id for each in active if each.turn.turn_id not in remaining],
            message=wire.text_of(checkpoint.turn),
        )

    @endpoint("POST", f"{SESSION}/checkout", access="reader", example=_CHECKPOINT)
    async def checkout(self, principal: Principal, session: SessionView, body: wire.Checkout) -> wire.CheckoutResult:
        """Show a session as it was at a checkpoint."""
        projection = await self._load_visible(session, principal)
        checkpoint = find_checkpoint(projection, body.checkpoint_id)
        shown = newest_branch_with(branches_in(projection), checkpoint).entries(projection.turns.all)
        turns = entries_until(shown, checkpoint, include_turn=body.position == "turn_end")
        return wire.CheckoutResult(
            checkpoint_id=body.checkpoint_id, position=body.position, turns=[each.turn for each in turns]
        )

    @endpoint("POST", f"{SESSION}/switch-branch", access="owner", example=_CHECKPOINT)
    async def switch_branch(self, session: SessionView, body: wire.CheckpointRequest) -> wire.SwitchBranchResult:
        """Continue the branch of a checkpoint."""
        projection = await load_projection(self.engine, session)
        checkpoint = find_checkpoint(projection, body.checkpoint_id)
        if is_busy(session.state):
            raise SessionBusy
        last = session.durable_cursor.seq
        branch = newest_branch_with(branches_of(projection.branch_marks, last), checkpoint)
        if branch.end < last:
            await self.engine.switch_branch(session, (*branch.hidden, (branch.end + 1, last)))
        leaf = branch.entries(projection.turns.all)[-1]
        return wire.SwitchBranchResult(
            session_id=chat.public_session_id(session.state.session_id), leaf_entry_id=leaf.turn.id
        )

    async def _load_visible(self, session: SessionView, principal: Principal) -> Projection:
        """Load a session's turns, without the memories if the caller is not the owner."""
        projection = await load_projection(self.engine, session)
        if session.state.owner != principal.user:
            remove_memories(projection.turns.all)
        return projection

    def _tools_tokens(self, session: SessionView) -> int:
        spec = self.engine.find_spec(session.state.agent)
        tools = () if spec is None else spec.tools
        return sum(wire.tokens_of_value(msgspec.to_builtins(tool.spec)) for tool in tools)


def find_checkpoint(projection: Projection, name: str) -> TurnBuilder:
    """Find the user's turn of a checkpoint. Raises NotFound."""
    seq = chat.parse_checkpoint_id(name)
    for each in projection.turns.all:
        if each.first_seq == seq and each.is_checkpoint:
            return each
    raise NotFound("there is no such checkpoint")
