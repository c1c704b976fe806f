"""The requirements of the AI SDK protocol. Sources are sections of its specification; "rule" numbers refer to
`docs/protocols/shared-rules.md`.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    Requirement("ai-sdk:suite:conversations", "Every conversation of the suite is possible", "ai-sdk 15"),
    # --- sending ------------------------------------------------------------------------------------------------------
    Requirement("ai-sdk:send:new", "User messages with unknown ids are new, and a run starts", "ai-sdk 3"),
    Requirement("ai-sdk:send:unsent", "Messages that never arrived are taken with the next", "ai-sdk 3"),
    Requirement("ai-sdk:send:retry", "A request that is repeated gets its run again; nothing runs twice", "ai-sdk 3"),
    Requirement("ai-sdk:send:failed", "A message whose run failed or was stopped is asked again", "ai-sdk 3"),
    Requirement(
        "ai-sdk:send:past", "A new chat begins with the past that the page sends, with nothing open", "ai-sdk 3"
    ),
    Requirement("ai-sdk:send:not-begun", "Nothing begins with an answer: 404", "ai-sdk 3"),
    Requirement("ai-sdk:edit:branch", "A known message with other words branches before it, at any depth", "ai-sdk 3"),
    Requirement(
        "ai-sdk:edit:complete",
        "A page that sends its whole history hides with a new message what it does not show any more",
        "rule 13; decision 59",
    ),
    Requirement("ai-sdk:edit:nothing-else", "Nothing else that a page resends hides or changes anything", "ai-sdk 3"),
    Requirement("ai-sdk:regenerate:depth", "`regenerate-message` asks again at any depth; the id is new", "ai-sdk 3"),
    Requirement(
        "ai-sdk:regenerate:unsent", "`regenerate-message` behind a message that never arrived sends it", "ai-sdk 3"
    ),
    Requirement("ai-sdk:regenerate:nothing", "Without a user message there is nothing to regenerate: 409", "ai-sdk 10"),
    Requirement("ai-sdk:ids:shown", "A branch keeps the ids that pages have, also of other protocols", "ai-sdk 3"),
    Requirement(
        "ai-sdk:request:files", "Files are `https:` or `data:`; other URLs are refused, none is fetched", "ai-sdk 2"
    ),
    Requirement("ai-sdk:request:metadata", "The metadata of a user message comes back in the history", "ai-sdk 2, 13"),
    Requirement("ai-sdk:request:body", "What the application adds to the body reaches the agent", "ai-sdk 2"),
    Requirement(
        "ai-sdk:request:lenient", "Bodies without a type or as text are JSON; unknown parts do not count", "ai-sdk 2"
    ),
    Requirement(
        "ai-sdk:request:limits", "Requests of any size and shape are answered with 4xx, never 5xx", "ai-sdk 15"
    ),
    Requirement(
        "ai-sdk:busy:left", "A run that nobody watches any more gives way to a new message", "ai-sdk 3, 8; rule 10"
    ),
    Requirement("ai-sdk:busy:watched", "While somebody watches, a new message is refused: 409", "ai-sdk 3"),
    Requirement(
        "ai-sdk:disconnect:policy", "A run goes on without its client, unless it asked to cancel it", "ai-sdk 8; rule 9"
    ),
    # --- answers ------------------------------------------------------------------------------------------------------
    Requirement("ai-sdk:tools:client", "The page's own tools are in the request, as a map or as a list", "ai-sdk 2"),
    Requirement("ai-sdk:tools:flags", "`providerExecuted` and `dynamic` say who runs a tool", "ai-sdk 5.1"),
    Requirement("ai-sdk:answers:result", "The output of a page's tool is kept as the value that it is", "ai-sdk 4, 13"),
    Requirement("ai-sdk:answers:approval", "An approval is asked for, given or denied once, and obeyed", "ai-sdk 4"),
    Requirement("ai-sdk:answers:question", "A question is answered by the output of its part", "ai-sdk 4; rule 21"),
    Requirement("ai-sdk:answers:waiting", "Calls that begin to wait while they run are answered so too", "ai-sdk 4"),
    Requirement("ai-sdk:answers:several", "Answers are taken one by one, in one message", "ai-sdk 4; rule 20"),
    Requirement("ai-sdk:answers:altered", "An approval of other arguments is refused, and the call waits", "ai-sdk 4"),
    Requirement(
        "ai-sdk:answers:forged", "Calls and approvals that the server did not ask for have no effect", "ai-sdk 4"
    ),
    Requirement(
        "ai-sdk:answers:next", "An answer that comes second gets the run that the first one started", "ai-sdk 4"
    ),
    Requirement(
        "ai-sdk:answers:nothing", "A continuation without an answer is refused: 409, not an empty stream", "ai-sdk 4"
    ),
    # --- the stream ---------------------------------------------------------------------------------------------------
    Requirement(
        "ai-sdk:stream:chunks", "Chunks follow the grammar, and clients of all versions accept them", "ai-sdk 5"
    ),
    Requirement("ai-sdk:stream:ids", "A turn is one message, whatever runs it has", "ai-sdk 5.6"),
    Requirement("ai-sdk:stream:parts", "Images, data, plans, cards, state and stages have chunks", "ai-sdk 5.1"),
    Requirement(
        "ai-sdk:stream:inner", "A call of a sub-agent that waits is a call of the message", "ai-sdk 6; rule 20"
    ),
    Requirement("ai-sdk:stream:metadata", "Metadata says when, in which session, and how many tokens", "ai-sdk 5.4"),
    Requirement("ai-sdk:stream:revoked", "A stream whose key is revoked ends with the reason", "ai-sdk 7 [chosen]"),
    Requirement("ai-sdk:stream:cut", "A step that a crash cut off is marked in the metadata", "ai-sdk 5.4; rule 25"),
    Requirement("ai-sdk:stream:taken", "An answer that is taken while others wait gets a short stream", "ai-sdk 4"),
    Requirement("ai-sdk:version:5", "Clients of version 5 get approvals as data and tools of their own", "ai-sdk 11"),
    Requirement("ai-sdk:version:7", "Clients of version 7 get the decisions of a turn that they join", "ai-sdk 11"),
    Requirement("ai-sdk:ends:abort", "A run that was stopped ends with `abort`, `finish`", "ai-sdk 5.5"),
    Requirement(
        "ai-sdk:ends:error", "A run that failed ends with `error`, `finish`; what was said stays", "ai-sdk 5.5, 10"
    ),
    Requirement(
        "ai-sdk:ends:broken", "A stream that the server breaks off has no end; a deleted chat's has", "ai-sdk 5, 10"
    ),
    # --- resuming and reading -----------------------------------------------------------------------------------------
    Requirement(
        "ai-sdk:resume:turn", "Resuming streams the whole turn from its beginning; 204 if nothing runs", "ai-sdk 7"
    ),
    Requirement(
        "ai-sdk:resume:settled", "Tools of earlier runs are sent so that pages do not run them again", "ai-sdk 7"
    ),
    Requirement(
        "ai-sdk:resume:open", "The history leaves out the answer that runs, or has it with `open`", "ai-sdk 7, 9"
    ),
    Requirement("ai-sdk:resume:missed", "`after` returns a turn that ended meanwhile", "ai-sdk 7"),
    Requirement("ai-sdk:position:suffix", "From any index, by any way, a stream is the rest of itself", "ai-sdk 7"),
    Requirement(
        "ai-sdk:position:wrong", "A position beyond the end gets the end; one that is none gets 400", "ai-sdk 7"
    ),
    Requirement("ai-sdk:position:workflow", "`WorkflowChatTransport` survives cuts anywhere", "ai-sdk 7, 15"),
    Requirement("ai-sdk:history:equal", "The history is what a client built from the streams", "ai-sdk 6, 9"),
    Requirement("ai-sdk:history:waiting", "A call that waits is shown so that it can be answered", "ai-sdk 9"),
    Requirement("ai-sdk:history:page", "A history is read in pages; a chat that does not exist has none", "ai-sdk 9"),
    Requirement("ai-sdk:chats:list", "Chats are listed, renamed and deleted", "ai-sdk 1"),
    Requirement(
        "ai-sdk:chats:ids",
        "A chat's id is any text of 1 to 256 characters without a slash at an end, but no placeholder of a library",
        "ai-sdk 1; rule 1",
    ),
    Requirement("ai-sdk:chats:foreign", "Another user's chat is as one that does not exist", "ai-sdk 1; rule 2"),
    Requirement("ai-sdk:chats:agent", "The agent of a chat cannot change: 409", "ai-sdk 10; rule 4"),
    Requirement("ai-sdk:stop:durable", "Stop ends the run for all readers, once", "ai-sdk 8"),
    Requirement("ai-sdk:errors:text", "An error is one sentence; its code is a header; JSON if asked for", "ai-sdk 10"),
    Requirement(
        "ai-sdk:errors:agent-not-served",
        "Chats of an agent that is no longer served can be read; a request is 409",
        "shared rules, 4",
    ),
    Requirement("ai-sdk:errors:table", "Every refusal has an answer", "ai-sdk 10"),
    # --- the npm package ----------------------------------------------------------------------------------------------
    Requirement("ai-sdk:package:stops", "With the package's `fetch`, `stop()` stops the run on the server", "ai-sdk 8"),
    Requirement("ai-sdk:package:helps", "It loads a chat, stops it, and sends the newest message alone", "ai-sdk 14"),
)
