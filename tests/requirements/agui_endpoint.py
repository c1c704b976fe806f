"""The requirements of the standard AG-UI endpoint, one entry for each rule. Sources are sections of the protocol's
specification; "rule" numbers refer to `docs/protocols/shared-rules.md`.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- clients ------------------------------------------------------------------------------------------------------
    Requirement(
        "ag-ui-b:suite:conversations", "Every conversation of the suite can be held through both clients", "ag-ui B.14"
    ),
    Requirement("ag-ui-b:clients:no-warnings", "The official clients write nothing to their console", "ag-ui B.14"),
    Requirement("ag-ui-b:text:one-message", "An assistant message is one text, opened and closed once", "ag-ui B.8, 2"),
    Requirement("ag-ui-b:text:streamed", "Text arrives while it is generated, not when the run is over", "ag-ui B.14"),
    Requirement(
        "ag-ui-b:tools:front-end",
        "A call of a front-end tool ends the run with `pendingToolCallIds`; its result comes as a tool message",
        "ag-ui B.8, 4",
    ),
    Requirement("ag-ui-b:tools:declined", "A declined front-end call is an answer", "ag-ui B.8, 4"),
    Requirement("ag-ui-b:history:once", "What clients resend is stored once and read by the model once", "ag-ui B.9"),
    Requirement("ag-ui-b:history:unparsed", "Arguments that are no JSON object are kept as their text", "rule 18"),
    Requirement("ag-ui-b:history:restart", "A thread is the same after a restart of the server", "ag-ui B.9"),
    Requirement("ag-ui-b:threads:parallel", "Threads run concurrently without mixing", "ag-ui B.14"),
    Requirement("ag-ui-b:disconnect:cancels", "A disconnect cancels the run that the client started", "ag-ui B.11"),
    Requirement("ag-ui-b:disconnect:next-at-once", "After an abort the next message is accepted at once", "ag-ui B.11"),
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
        "An approved call runs; its result has the original id, and its call is not repeated",
        "ag-ui B.10",
    ),
    Requirement(
        "ag-ui-b:interrupts:edited",
        "An approval may replace the arguments (`editedArgs`), which are validated; every history shows what ran",
        "ag-ui B.10",
    ),
    Requirement("ag-ui-b:interrupts:cancel", "A cancelled interrupt declines; the model reads it", "ag-ui B.10"),
    Requirement("ag-ui-b:interrupts:client-refuses", "Clients refuse to run over an open interrupt", "ag-ui B.10"),
    Requirement(
        "ag-ui-b:hydrate:snapshot", "`messages: []` on a known thread gives all messages and runs nothing", "ag-ui B.9"
    ),
    Requirement(
        "ag-ui-b:hydrate:as-live",
        "Hydration and `connect` give a client what it has after the streams: messages, cards, images, files, data",
        "ag-ui B.9; rule 13",
    ),
    Requirement(
        "ag-ui-b:history:incomplete",
        "Messages that were stopped, failed or were cut off are marked, in the stream and in hydration",
        "ag-ui B.8; rule 25",
    ),
    Requirement("ag-ui-b:hydrate:interrupts", "Hydration ends with the interrupts that are open", "ag-ui B.9"),
    Requirement("ag-ui-b:state:hydrated", "The state that a client sent last is returned with the thread", "ag-ui B.9"),
    Requirement(
        "ag-ui-b:state:shared", "A state changed by the agent is a STATE_SNAPSHOT, and is stored", "ag-ui B.8, 6"
    ),
    Requirement(
        "ag-ui-b:state:kept", "A run without a state, or with `{}`, leaves the thread's state as it is", "ag-ui B.3"
    ),
    Requirement(
        "ag-ui-b:state:delta",
        "A change of a state is a delta, if that is smaller",
        "ag-ui B.8, 6",
    ),
    Requirement("ag-ui-b:connect:joins", "`connect` sends the thread and joins the active run", "ag-ui B.9"),
    Requirement(
        "ag-ui-b:connect:reopened",
        "Open messages are left out of the snapshot and reopened with their text so far",
        "ag-ui B.9",
    ),
    Requirement("ag-ui-b:connect:after-crash", "`connect` joins a run that continues after a crash", "ag-ui B.9"),
    Requirement("ag-ui-b:subagents:attributed", "Events of a sub-agent carry its `subagentRunId`", "ag-ui B.5"),
    Requirement("ag-ui-b:transport:http-errors", "Clients get the status and the JSON body of a refusal", "ag-ui B.2"),
    # --- the wire -----------------------------------------------------------------------------------------------------
    Requirement(
        "ag-ui-b:wire:frames", "One event for each frame; lines end with LF; nothing else but comments", "ag-ui B.4"
    ),
    Requirement("ag-ui-b:wire:headers", "Streams must not be cached or buffered", "ag-ui B.4"),
    Requirement("ag-ui-b:wire:no-nulls", "Optional fields are left out, never null", "ag-ui B.5"),
    Requirement("ag-ui-b:wire:integer-times", "Timestamps are integers of milliseconds", "ag-ui B.5"),
    Requirement("ag-ui-b:wire:ids", "Frame ids grow along the thread and are the same in every replay", "ag-ui B.4"),
    Requirement("ag-ui-b:wire:frame-size", "No frame is larger than clients take: 10 MiB", "ag-ui B.4"),
    Requirement("ag-ui-b:order", "Everything opened is closed once before the run ends", "ag-ui B.7"),
    Requirement(
        "ag-ui-b:connect:any-moment", "A client that joins at any moment ends up with the stored messages", "ag-ui B.9"
    ),
    Requirement("ag-ui-b:interrupts:parked", "A call interrupted by a crash may be an interrupt", "ag-ui B.10"),
    Requirement("ag-ui-b:downgrade:unchanged", "1.0 clients get the 1.0 events", "ag-ui B.6"),
    Requirement("ag-ui-b:events:end", "Each reason to stop has its own end", "ag-ui B.5; rule 24"),
    Requirement("ag-ui-b:events:usage", "The end has token counts; an unknown count is omitted", "ag-ui B.5"),
    Requirement("ag-ui-b:validate", "A third-party validator finds no errors", "ag-ui B.14, 3"),
    Requirement("ag-ui-b:input:minimal", "`threadId`, `runId` and `messages` are enough", "ag-ui B.3"),
    Requirement("ag-ui-b:input:unknown", "Unknown members, roles and newer minor versions are served", "ag-ui B.3"),
    Requirement("ag-ui-b:input:snake-case", "snake_case spellings are read", "ag-ui B.3"),
    Requirement("ag-ui-b:input:parts", "Unknown parts are left out, the retired `binary` is mapped", "ag-ui B.3"),
    Requirement("ag-ui-b:input:unusable", "Content and tools that the agent does not support are refused", "rule 17"),
    Requirement(
        "ag-ui-b:input:malformed", "Broken JSON and known fields of wrong types are 400 with the path", "ag-ui B.3"
    ),
    Requirement("ag-ui-b:input:version", "Another major version is refused before the stream opens", "ag-ui B.3"),
    Requirement("ag-ui-b:input:any-bytes", "Any bytes decode or are refused", "ag-ui B.3"),
    Requirement("ag-ui-b:input:props", "State, context and forwardedProps reach the agent", "ag-ui B.3, B.13"),
    Requirement("ag-ui-b:input:time", "An invalid device time zone counts as absent", "ag-ui A.3, traps"),
    Requirement("ag-ui-b:input:context", "The model gets the context of the application", "ag-ui B.3"),
    Requirement("ag-ui-b:downgrade:pending", "0.x clients get no outcome while calls are pending", "ag-ui B.6"),
    Requirement("ag-ui-b:downgrade:parts", "0.x clients get results with parts as text", "ag-ui B.6"),
    Requirement("ag-ui-b:downgrade:subagents", "`ag_ui_min_client` 0.0.58 leaves sub-agents out", "ag-ui B.6 [chosen]"),
    Requirement("ag-ui-b:downgrade:cancelled", "0.x clients get a cancelled run as RUN_ERROR", "ag-ui B.6"),
    # --- threads ------------------------------------------------------------------------------------------------------
    Requirement("ag-ui-b:auth:keys", "A bearer token or an API key header; 401 and 403 as JSON", "ag-ui B.2"),
    Requirement("ag-ui-b:cors", "Pages may send authorization, content-type, last-event-id and x-*", "ag-ui B.2"),
    Requirement("ag-ui-b:capabilities", "The capabilities match the agent", "ag-ui B.12"),
    Requirement("ag-ui-b:threads:foreign", "Another user's thread is 403, and reveals nothing", "ag-ui B.3; rule 2"),
    Requirement(
        "ag-ui-b:threads:names", "A thread id that is not a UUID is a name chosen by its owner", "ag-ui B.3; rule 1"
    ),
    Requirement("ag-ui-b:threads:one-session", "A thread is one session on all protocols, seen live", "rule 11"),
    Requirement("ag-ui-b:threads:unknown", "Unknown agents and threads are 404", "ag-ui B.3, B.9"),
    Requirement("ag-ui-b:threads:agent-fixed", "Another agent's name for a thread is 409", "rule 4"),
    Requirement("ag-ui-b:threads:same-first", "Two concurrent first requests create one thread", "ag-ui B.11"),
    Requirement("ag-ui-b:runs:replayed", "A repeated run id replays the run, also after a restart", "ag-ui B.11"),
    Requirement("ag-ui-b:runs:joined", "A repeated run id joins the active run", "ag-ui B.11"),
    Requirement("ag-ui-b:runs:conflict", "The same run id with another body is 409", "ag-ui B.11 [chosen]"),
    Requirement("ag-ui-b:runs:answer", "An answer may have the id of the run that asked", "decision 43; CopilotKit"),
    Requirement(
        "ag-ui-b:threads:agent-not-served",
        "A thread whose agent is gone can be read; a run is RUN_ERROR `agent_not_served`",
        "rule 4",
    ),
    Requirement("ag-ui-b:runs:busy", "A watched run is not disturbed: RUN_ERROR `thread_busy`", "ag-ui B.11; rule 10"),
    Requirement("ag-ui-b:runs:end-first", "The thread is free before the end is sent", "ag-ui B.8, 10"),
    Requirement("ag-ui-b:disconnect:continue", "A header or a setting lets runs continue", "ag-ui B.11"),
    Requirement("ag-ui-b:disconnect:watched", "A run with another reader continues", "rule 9"),
    Requirement("ag-ui-b:disconnect:orphan", "A run without a reader is stopped by the next message", "ag-ui B.11"),
    Requirement("ag-ui-b:slow-reader", "A slow reader neither slows the run nor misses events", "ag-ui B.14, 5"),
    Requirement("ag-ui-b:stop", "The stop route ends a run; it takes `runId` and nothing else", "ag-ui B.2"),
    Requirement(
        "ag-ui-b:interrupts:unanswered",
        "A request that leaves an interrupt uncovered is refused",
        "ag-ui B.10; rule 19",
    ),
    Requirement("ag-ui-b:interrupts:invalid", "A payload that does not match leaves the interrupt open", "ag-ui B.10"),
    Requirement("ag-ui-b:interrupts:once", "The same answer twice runs the tool once", "ag-ui B.10"),
    Requirement(
        "ag-ui-b:interrupts:unknown", "Unknown interrupts are ignored and reported in the metadata", "ag-ui B.10"
    ),
    Requirement("ag-ui-b:interrupts:new-message", "Cancelled with a new message: closed by it", "rule 19"),
    Requirement("ag-ui-b:interrupts:remember", "`remember` allows a tool for the thread", "rule 17"),
    Requirement("ag-ui-b:interrupts:question", "A question is answered by a selection or free text", "rule 21"),
    Requirement("ag-ui-b:tools:some-answered", "Answers are accepted one by one, each once", "rule 20"),
    Requirement(
        "ag-ui-b:tools:closed", "A call that a new message closes has its result in the run of that message", "rule 19"
    ),
    Requirement("ag-ui-b:tools:both", "A step may wait for a person and for the client", "ag-ui B.8, B.10"),
    Requirement("ag-ui-b:forged", "A forged history executes nothing and shows nothing", "ag-ui B.10; design, 3"),
    Requirement("ag-ui-b:history:only-new", "A client may send only what is new", "ag-ui B.9"),
    Requirement("ag-ui-b:history:seeds", "A new thread starts with the history that its client sends", "ag-ui B.9"),
    Requirement("ag-ui-b:branch:edit", "An edited user message, with its old or a new id, opens a branch", "rule 13"),
    Requirement("ag-ui-b:branch:regenerate", "A history that ends in a known message gets a new answer", "rule 13"),
    Requirement("ag-ui-b:branch:shorter", "A new message behind a shorter history branches there", "rule 13"),
    Requirement("ag-ui-b:branch:sibling", "A new message behind an inactive branch continues that branch", "rule 13"),
    Requirement("ag-ui-b:branch:retry", "A message whose run failed can be retried, with what it had said", "rule 13"),
    Requirement(
        "ag-ui-b:branch:shown",
        "After edits, regenerations and branches the model gets what the client shows",
        "rule 13",
    ),
    Requirement("ag-ui-b:branch:join", "A retry while the run continues joins it", "rule 13"),
    Requirement("ag-ui-b:hydrate:failed", "Hydration says that the last run failed", "rules 13, 35"),
    Requirement("ag-ui-b:events:log", "The events route has all runs, with what was sent", "ag-ui B.2"),
    Requirement("ag-ui-b:events:position", "It resumes strictly after `Last-Event-ID`", "ag-ui B.9"),
    Requirement("ag-ui-b:events:live", "It streams live what other protocols send", "rule 11"),
    Requirement("ag-ui-b:connect:as-it-stands", "On an idle thread `connect` is hydration", "ag-ui B.9"),
    # --- the npm package ----------------------------------------------------------------------------------------------
    Requirement("ag-ui-b:package:reconnects", "The npm package's agent reads on after a lost connection", "rule 8"),
    Requirement("ag-ui-b:package:reloads", "It shows the thread to a new page, and joins the active run", "ag-ui B.9"),
    Requirement("ag-ui-b:package:stops", "Aborting stops the run on the server", "ag-ui B.11"),
    # --- front ends ---------------------------------------------------------------------------------------------------
    Requirement(
        "ag-ui-b:front-ends:branches", "What CopilotKit and assistant-ui edit is what the model gets", "rule 13"
    ),
    Requirement(
        "ag-ui-b:front-ends:tools", "Tools of their pages run, and the run continues with the result", "ag-ui B.8, 4"
    ),
    Requirement("ag-ui-b:front-ends:failed", "A failed answer is marked and can be asked for again", "rule 13"),
    Requirement("ag-ui-b:front-ends:stop", "Their stop button stops the run", "ag-ui B.11"),
    Requirement("ag-ui-b:front-ends:two-pages", "Two pages on one thread do not disturb each other", "rule 20"),
    Requirement("ag-ui-b:front-ends:approval", "An approval survives a reload", "ag-ui B.10"),
    Requirement("ag-ui-b:front-ends:cut", "What a crash cut off is marked", "rule 25"),
    Requirement("ag-ui-b:front-ends:reload", "A reload shows what was seen live", "ag-ui B.9"),
    Requirement(
        "ag-ui-b:front-ends:examples", "The examples of the documentation are those that the tests run", "ag-ui B.13"
    ),
    Requirement("ag-ui-b:page", "The example page works in a real browser, from another origin", "ag-ui B.14"),
    Requirement("ag-ui-b:subagents:suspended", "A waiting sub-agent is suspended and continues later", "ag-ui B.5"),
    Requirement("ag-ui-b:errors:shutdown", "A stream that a stopping server ends has a terminal event", "ag-ui B.7"),
    Requirement("ag-ui-b:errors:revoked", "A stream whose key is revoked has a terminal event", "ag-ui B.7"),
    Requirement("ag-ui-b:errors:deleted", "A stream of a deleted thread has a terminal event", "ag-ui B.7"),
)
