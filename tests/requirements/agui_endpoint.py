"""What the standard AG-UI endpoint demands of a server, one entry for each rule, in our words. Sources are sections of
the protocol's specification as we build it; "ruling" numbers are those of the decisions where the four protocols meet.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- clients ------------------------------------------------------------------------------------------------------
    Requirement(
        "ag-ui-b:suite:conversations", "Every conversation of the suite can be held through both clients", "ag-ui B.14"
    ),
    Requirement("ag-ui-b:clients:no-warnings", "The official clients write nothing to their console", "ag-ui B.14"),
    Requirement("ag-ui-b:text:one-message", "An assistant message is one text, opened and closed once", "ag-ui B.8, 2"),
    Requirement("ag-ui-b:text:streamed", "Words arrive as they are said, not when the run is over", "ag-ui B.14"),
    Requirement(
        "ag-ui-b:tools:front-end",
        "A call of a front-end tool ends the run with `pendingToolCallIds`; its result comes as a tool message",
        "ag-ui B.8, 4",
    ),
    Requirement("ag-ui-b:tools:declined", "A declined front-end call is an answer", "ag-ui B.8, 4"),
    Requirement("ag-ui-b:history:once", "What clients resend is stored once and read by the model once", "ag-ui B.9"),
    Requirement("ag-ui-b:history:restart", "A thread is the same after a restart of the server", "ag-ui B.9"),
    Requirement("ag-ui-b:threads:parallel", "Threads run at the same time and keep apart", "ag-ui B.14"),
    Requirement("ag-ui-b:disconnect:cancels", "A client that leaves cancels the run that it started", "ag-ui B.11"),
    Requirement("ag-ui-b:disconnect:next-at-once", "After an abort the next message is taken at once", "ag-ui B.11"),
    Requirement(
        "ag-ui-b:errors:run-error",
        "A failed run ends with RUN_ERROR, without internals; the thread takes the next message",
        "ag-ui B.8, 9",
    ),
    Requirement(
        "ag-ui-b:interrupts:shape", "An approval is an interrupt `tool_call` with a response schema", "ag-ui B.10"
    ),
    Requirement(
        "ag-ui-b:interrupts:approve",
        "An approved call runs; its result is told for the original id, its call not again",
        "ag-ui B.10",
    ),
    Requirement("ag-ui-b:interrupts:cancel", "A cancelled interrupt declines; the model reads it", "ag-ui B.10"),
    Requirement("ag-ui-b:interrupts:client-refuses", "Clients refuse to go on over an open interrupt", "ag-ui B.10"),
    Requirement(
        "ag-ui-b:hydrate:snapshot", "`messages: []` on a known thread gives all messages and runs nothing", "ag-ui B.9"
    ),
    Requirement("ag-ui-b:hydrate:interrupts", "Hydration ends with the interrupts that are open", "ag-ui B.9"),
    Requirement("ag-ui-b:state:hydrated", "The state that a client sent last comes back with the thread", "ag-ui B.9"),
    Requirement(
        "ag-ui-b:state:shared", "What the agent makes of the state is a STATE_SNAPSHOT, and stays", "ag-ui B.8, 6"
    ),
    Requirement("ag-ui-b:connect:joins", "`connect` tells the thread and joins the live run", "ag-ui B.9"),
    Requirement(
        "ag-ui-b:connect:reopened",
        "What is open is left out of the snapshot, opened again and told so far in one piece",
        "ag-ui B.9",
    ),
    Requirement(
        "ag-ui-b:connect:after-crash", "`connect` joins a run that a crash cut off and that goes on", "ag-ui B.9"
    ),
    Requirement("ag-ui-b:subagents:attributed", "What a sub-agent does carries its `subagentRunId`", "ag-ui B.5"),
    Requirement("ag-ui-b:transport:http-errors", "Clients get the status and the JSON body of a refusal", "ag-ui B.2"),
    # --- the wire -----------------------------------------------------------------------------------------------------
    Requirement(
        "ag-ui-b:wire:frames", "One event for each frame; lines end with LF; nothing else but comments", "ag-ui B.4"
    ),
    Requirement("ag-ui-b:wire:headers", "Streams are not to be cached or buffered", "ag-ui B.4"),
    Requirement("ag-ui-b:wire:no-nulls", "Optional fields are left out, never null", "ag-ui B.5"),
    Requirement("ag-ui-b:wire:integer-times", "Timestamps are integers of milliseconds", "ag-ui B.5"),
    Requirement("ag-ui-b:wire:ids", "Frame ids grow along the thread and are the same in every replay", "ag-ui B.4"),
    Requirement("ag-ui-b:wire:frame-size", "No frame is larger than clients take: 10 MiB", "ag-ui B.4"),
    Requirement("ag-ui-b:order", "What is opened is closed, once, before the run ends", "ag-ui B.7"),
    Requirement("ag-ui-b:connect:any-moment", "Joining at any moment gives in the end what is stored", "ag-ui B.9"),
    Requirement("ag-ui-b:interrupts:parked", "A call that a crash cut off may be an interrupt", "ag-ui B.10"),
    Requirement("ag-ui-b:downgrade:unchanged", "1.0 clients get the 1.0 events", "ag-ui B.6"),
    Requirement("ag-ui-b:events:end", "Each reason to stop has its own end", "ag-ui B.5; ruling 24"),
    Requirement("ag-ui-b:events:usage", "The end tells tokens; an unknown count is absent", "ag-ui B.5"),
    Requirement("ag-ui-b:validate", "A third-party validator finds no errors", "ag-ui B.14, 3"),
    Requirement("ag-ui-b:input:minimal", "`threadId`, `runId` and `messages` are enough", "ag-ui B.3"),
    Requirement("ag-ui-b:input:unknown", "Unknown members, roles and newer minor versions are served", "ag-ui B.3"),
    Requirement("ag-ui-b:input:snake-case", "snake_case spellings are read", "ag-ui B.3"),
    Requirement("ag-ui-b:input:parts", "Unknown parts are left out, the retired `binary` is mapped", "ag-ui B.3"),
    Requirement("ag-ui-b:input:unusable", "What the agent cannot use is left out, not refused", "ag-ui B.3"),
    Requirement(
        "ag-ui-b:input:malformed", "Broken JSON and known fields of wrong types are 400 with the place", "ag-ui B.3"
    ),
    Requirement("ag-ui-b:input:version", "Another major version is refused before the stream opens", "ag-ui B.3"),
    Requirement("ag-ui-b:input:any-bytes", "Any bytes are a request or a refusal", "ag-ui B.3"),
    Requirement("ag-ui-b:input:props", "State, context and forwardedProps reach the agent", "ag-ui B.3, B.13"),
    Requirement("ag-ui-b:input:time", "A run falls back where its device's time zone is none", "ag-ui A.3, traps"),
    Requirement("ag-ui-b:input:context", "The model is told the context of the application", "ag-ui B.3"),
    Requirement("ag-ui-b:downgrade:pending", "0.x clients get no `pendingToolCallIds`", "ag-ui B.6"),
    Requirement("ag-ui-b:downgrade:parts", "0.x clients get results with parts as text", "ag-ui B.6"),
    Requirement("ag-ui-b:downgrade:subagents", "`ag_ui_min_client` 0.0.58 leaves sub-agents out", "ag-ui B.6 [chosen]"),
    Requirement("ag-ui-b:downgrade:cancelled", "0.x clients get a cancelled run as RUN_ERROR", "ag-ui B.6"),
    # --- threads ------------------------------------------------------------------------------------------------------
    Requirement("ag-ui-b:auth:keys", "A bearer token or an API key header; 401 and 403 as JSON", "ag-ui B.2"),
    Requirement("ag-ui-b:cors", "Pages may send authorization, content-type, last-event-id and x-*", "ag-ui B.2"),
    Requirement("ag-ui-b:capabilities", "The capabilities declare what holds", "ag-ui B.12"),
    Requirement("ag-ui-b:threads:foreign", "Another user's thread is 403, and tells nothing", "ag-ui B.3; ruling 2"),
    Requirement("ag-ui-b:threads:names", "A thread id that is no UUID is a name of its owner", "ag-ui B.3; ruling 1"),
    Requirement("ag-ui-b:threads:one-session", "A thread is one session on all protocols, seen live", "ruling 11"),
    Requirement("ag-ui-b:threads:unknown", "Unknown agents and threads are 404", "ag-ui B.3, B.9"),
    Requirement("ag-ui-b:threads:agent-fixed", "Another agent's name for a thread is 409", "ruling 4"),
    Requirement("ag-ui-b:threads:same-first", "Two first requests at once make one thread", "ag-ui B.11"),
    Requirement("ag-ui-b:runs:replayed", "The same run id again replays the run, also after a restart", "ag-ui B.11"),
    Requirement("ag-ui-b:runs:joined", "The same run id again joins the active run", "ag-ui B.11"),
    Requirement("ag-ui-b:runs:conflict", "The same run id with another body is 409", "ag-ui B.11 [chosen]"),
    Requirement(
        "ag-ui-b:runs:busy", "A watched run is not disturbed: RUN_ERROR `thread_busy`", "ag-ui B.11; ruling 10"
    ),
    Requirement("ag-ui-b:runs:end-first", "The slot is free before the end is seen", "ag-ui B.8, 10"),
    Requirement("ag-ui-b:disconnect:continue", "A header or a setting lets runs go on", "ag-ui B.11"),
    Requirement("ag-ui-b:disconnect:watched", "A run that somebody else watches goes on", "ruling 9"),
    Requirement("ag-ui-b:disconnect:orphan", "A run without a reader makes way for the next message", "ag-ui B.11"),
    Requirement("ag-ui-b:slow-reader", "A slow reader slows no run, and misses nothing", "ag-ui B.14, 5"),
    Requirement("ag-ui-b:stop", "The stop route ends a run; it takes `runId` and nothing else", "ag-ui B.2"),
    Requirement("ag-ui-b:interrupts:unanswered", "An uncovered interrupt stops everything", "ag-ui B.10; ruling 19"),
    Requirement("ag-ui-b:interrupts:invalid", "A payload that does not match leaves the interrupt open", "ag-ui B.10"),
    Requirement("ag-ui-b:interrupts:once", "The same answer twice runs the tool once", "ag-ui B.10"),
    Requirement("ag-ui-b:interrupts:unknown", "Unknown interrupts are ignored with a remark", "ag-ui B.10"),
    Requirement("ag-ui-b:interrupts:new-message", "Cancelled with a new message: closed by it", "ruling 19"),
    Requirement("ag-ui-b:interrupts:remember", "`remember` allows a tool for the thread", "ruling 17"),
    Requirement("ag-ui-b:interrupts:question", "A question is answered by a choice or in words", "ruling 21"),
    Requirement("ag-ui-b:tools:some-answered", "Answers are taken one by one, each once", "ruling 20"),
    Requirement("ag-ui-b:tools:both", "A step may wait for a person and for the client", "ag-ui B.8, B.10"),
    Requirement("ag-ui-b:forged", "A forged history executes nothing and shows nothing", "ag-ui B.10; design, 3"),
    Requirement("ag-ui-b:history:only-new", "A client may send only what is new", "ag-ui B.9"),
    Requirement("ag-ui-b:history:seeds", "A new thread takes what was before", "ag-ui B.9"),
    Requirement("ag-ui-b:branch:edit", "An edit of the newest user message opens a branch", "ag-ui B.9; ruling 13"),
    Requirement("ag-ui-b:branch:parent", "A shorter history is a branch with `parentRunId` only", "ag-ui B.9"),
    Requirement("ag-ui-b:branch:retry", "A message whose run failed may be asked again", "ag-ui B.9 [chosen]"),
    Requirement("ag-ui-b:events:log", "The events route tells all runs, with what was sent", "ag-ui B.2"),
    Requirement("ag-ui-b:events:position", "It goes on strictly after `Last-Event-ID`", "ag-ui B.9"),
    Requirement("ag-ui-b:events:live", "It tells live what other protocols send", "ruling 11"),
    Requirement("ag-ui-b:connect:as-it-stands", "At rest `connect` is hydration", "ag-ui B.9"),
    Requirement("ag-ui-b:page", "The example page works in a real browser, from another origin", "ag-ui B.14"),
    Requirement("ag-ui-b:subagents:suspended", "A sub-agent that waits is suspended, and goes on later", "ag-ui B.5"),
    Requirement("ag-ui-b:errors:shutdown", "A stream that a stopping server ends has a terminal event", "ag-ui B.7"),
    Requirement("ag-ui-b:errors:revoked", "A stream whose key is revoked has a terminal event", "ag-ui B.7"),
    Requirement("ag-ui-b:errors:deleted", "A stream of a deleted thread has a terminal event", "ag-ui B.7"),
)
