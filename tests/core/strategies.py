"""Strategies for the core's values: texts, JSON, messages, settings and every kind of event."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import strategies as st

from dragoman.core.content import (
    AssistantMessage,
    Call,
    Data,
    File,
    Image,
    SystemMessage,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    UserMessage,
)
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    Branched,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    CardUpdated,
    Compaction,
    CompactionMade,
    Cut,
    EncryptedValue,
    Event,
    MemoriesInjected,
    MemoryUse,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    PlanStep,
    PlanUpdated,
    RunParked,
    RunQueued,
    RunResumed,
    RunStarted,
    RunStopped,
    SessionCreated,
    SessionSettings,
    SettingsChange,
    SettingsChanged,
    SharedStateReplaced,
    StageChanged,
)
from dragoman.core.ids import ROOT
from dragoman.core.run_metadata import ContextEntry, RunMetadata
from dragoman.core.tools import ToolGrant, ToolSpec

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""Any text that can be sent: everything but half characters."""

names = st.text(st.sampled_from("abcXYZ019_-"), min_size=1, max_size=8)
ids = st.uuids(version=4).map(str)
times = st.integers(0, 10**15).map(lambda us: NOON + timedelta(microseconds=us))
counts = st.integers(0, 10**9)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(words, json_values, max_size=3)

texts = st.builds(Text, words)
images = st.builds(Image, words)
files = st.builds(File, words, st.sampled_from(["audio", "video", "file"]), st.none() | words, st.none() | words)
data = st.builds(Data, json_objects)
calls = st.builds(Call, ids, names, json_objects, st.none() | words)
input_blocks = texts | images | files | data
blocks = input_blocks | st.builds(Thinking, words) | calls
input_contents = words | st.lists(input_blocks, max_size=3).map(tuple)
loops = st.just(ROOT) | ids.map("fork:{}".format)
usages = st.builds(Usage, input_tokens=counts, output_tokens=counts)

user_messages = st.builds(
    UserMessage,
    id=ids,
    content=input_contents,
    loop=loops,
    client_id=st.none() | words,
    name=st.none() | names,
    metadata=st.just(msgspec.UNSET) | json_values,
)
assistant_messages = st.builds(
    AssistantMessage,
    id=ids,
    content=words | st.lists(blocks, max_size=3).map(tuple),
    loop=loops,
    status=st.sampled_from(["completed", "interrupted", "failed", "cut"]),
    model=st.none() | names,
    usage=st.none() | usages,
)
tool_messages = st.builds(
    ToolMessage, id=ids, call_id=ids, name=names, content=input_contents, loop=loops, is_error=st.booleans()
) | st.builds(ToolMessage, id=ids, call_id=ids, name=names, content=words, raw=json_values)
system_messages = st.builds(SystemMessage, id=ids, content=words, origin=st.sampled_from(["seed", "notice"]))
messages = user_messages | assistant_messages | tool_messages | system_messages

tool_specs = st.builds(ToolSpec, name=names, description=words, parameters=json_objects, title=st.none() | words)
grants = st.builds(ToolGrant, names, st.booleans())
option_values = words | st.builds(EncryptedValue, words, counts)
options = st.dictionaries(names, option_values, max_size=3)
tool_settings = st.none() | st.just("all") | st.lists(grants, max_size=3).map(tuple)
settings = st.builds(
    SessionSettings,
    tools=tool_settings,
    trusted_tools=st.lists(names, max_size=2).map(tuple),
    options=options,
    client_tools=st.lists(tool_specs, max_size=2).map(tuple),
    title=st.none() | words,
    labels=st.dictionaries(words, words, max_size=2),
)
changes = st.builds(
    SettingsChange,
    tools=tool_settings,
    trusted_tools=st.none() | st.lists(names, max_size=2).map(tuple),
    options=options,
    client_tools=st.none() | st.lists(tool_specs, max_size=2).map(tuple),
    title=st.none() | words,
    labels=st.none() | st.dictionaries(words, words, max_size=2),
)

run_metadata = st.builds(
    RunMetadata,
    time_zone=st.none() | words,
    client_time=st.none() | json_objects,
    env=st.dictionaries(names, words, max_size=2),
    state=st.just(msgspec.UNSET) | json_values,
    context=st.lists(st.builds(ContextEntry, words, words), max_size=2).map(tuple),
    forwarded=st.just(msgspec.UNSET) | json_values,
    headless=st.booleans(),
    output_schema=st.none() | json_objects,
    protocol=json_objects,
)
runs = {
    "run_id": ids,
    "protocol": names,
    "inputs": st.lists(user_messages, max_size=2).map(tuple),
    "client_run_id": st.none() | words,
    "client_tools": st.lists(tool_specs, max_size=2).map(tuple),
    "parameters": json_objects,
    "metadata": run_metadata,
}
compacted = st.builds(Compaction, seq=counts, summary=words, up_to=counts)
cuts = st.builds(Cut, counts, counts, st.lists(counts, max_size=5))

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(SessionCreated, agent=names, settings=settings, protocol=names),
    st.builds(SettingsChanged, change=changes),
    st.builds(MessageAdded, message=messages),
    st.builds(RunQueued, change=changes, **runs),
    st.builds(RunStarted, dropped_tools=st.lists(names, max_size=2).map(tuple), **runs),
    st.builds(
        Branched,
        hidden_ranges=st.lists(st.tuples(counts, counts), max_size=3).map(tuple),
        compaction=st.none() | compacted,
    ),
    st.builds(RunResumed, run_id=ids, attempt=counts),
    st.builds(RunParked, run_id=ids),
    st.builds(
        RunStopped,
        run_id=ids,
        reason=st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal", "cancelled", "error", "interrupted"]),
        code=st.none() | names,
        message=st.none() | words,
        usage=usages,
    ),
    st.builds(MessageOpened, message_id=ids, loop=loops),
    st.builds(BlockClosed, message_id=ids, index=counts, block=blocks, loop=loops, cuts=st.lists(cuts, max_size=3)),
    st.builds(
        CallOpened,
        message_id=ids,
        index=counts,
        call=calls,
        kind=st.sampled_from(["client", "permission", "question", "inline", "fork", "missing"]),
        loop=loops,
        server=st.none() | words,
        recorded=st.booleans(),
        deniable=st.booleans(),
    ),
    st.builds(
        MessageClosed,
        message_id=ids,
        status=st.sampled_from(["completed", "interrupted", "failed", "cut"]),
        loop=loops,
        model=st.none() | words,
        usage=st.none() | usages,
    ),
    st.builds(CallStarted, call_id=ids),
    st.builds(
        CallParked,
        call_id=ids,
        kind=st.sampled_from([None, "client", "permission", "question"]),
        note=json_values,
    ),
    st.builds(
        AnswerGiven,
        call_id=ids,
        granted=st.booleans(),
        by=names,
        reason=st.none() | words,
        result=st.none() | tool_messages,
        arguments=st.none() | json_objects,
    ),
    st.builds(
        CallSettled,
        outcome=st.sampled_from(["done", "failed", "denied", "cancelled", "interrupted"]),
        result=tool_messages,
        by_client=st.booleans(),
    ),
    st.builds(
        CompactionMade,
        summary=words,
        up_to=counts,
        archived_count=counts,
        tokens_before=counts,
        tokens_after=counts,
        trigger=st.sampled_from(["auto", "manual", "forced_retry"]),
    ),
    st.builds(
        PlanUpdated,
        status=st.sampled_from(["draft", "approved", "in_progress", "done"]),
        steps=st.lists(
            st.builds(PlanStep, words, st.sampled_from(["pending", "in_progress", "done", "skipped"])), max_size=3
        ).map(tuple),
        loop=loops,
    ),
    st.builds(StageChanged, stage=st.none() | words, loop=loops),
    st.builds(SharedStateReplaced, state=json_values, loop=loops),
    st.builds(CardUpdated, card=json_values, loop=loops),
    st.builds(
        MemoriesInjected,
        memories=st.lists(st.builds(MemoryUse, counts, words, st.none() | words), max_size=3).map(tuple),
    ),
)
