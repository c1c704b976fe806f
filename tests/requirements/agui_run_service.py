"""The requirements of the AG-UI run service, one entry for each rule. Sources are seed 002 and part A of the protocol's
specification; "rule" numbers refer to `docs/protocols/shared-rules.md`.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- the rules of a run -------------------------------------------------------------------------------------------
    Requirement("runs:rules:table", "Twenty rules are checked in a fixed order", "ag-ui A.3 [chosen]"),
    Requirement(
        "runs:rules:border", "Each rule accepts values just inside it and refuses values just outside", "ag-ui A.3"
    ),
    Requirement("runs:rules:order", "The first of several broken rules is the answer", "ag-ui A.3 [chosen]"),
    Requirement("runs:rules:messages", "Each rule answers 422 with its exact message; nothing is created", "seed 002"),
    Requirement(
        "runs:rules:shape", "A wrong shape is `invalid RunAgentInput` with the fields in `errors`", "ag-ui A.3"
    ),
    Requirement("runs:rules:pictures", "Images are checked one by one, before they are counted", "ag-ui A.3, traps"),
    Requirement("runs:rules:image-part", "AG-UI 1.0's image part means what `binary` means", "ag-ui A.3 [chosen]"),
    Requirement("runs:aliases:every-depth", "Every field is accepted in camelCase and in snake_case", "seed 002"),
    Requirement("runs:aliases:opaque", "Names inside opaque values are unchanged", "ag-ui A.3 [chosen]"),
    Requirement("runs:aliases:camel-wins", "If both spellings are present, camelCase wins", "ag-ui A.3 [chosen]"),
    Requirement("runs:errors:complete", "Every refusal of the core has an answer", "style, 4"),
    Requirement("runs:events:revoked", "A stream ends when the key that opened it is revoked", "rule 5"),
    Requirement("runs:errors:draining", "A server that stops answers 503 with Retry-After", "design, 6"),
    Requirement("runs:errors:problem", "Errors are problem details with `code`", "ag-ui A.1 [chosen]"),
    # --- runs ---------------------------------------------------------------------------------------------------------
    Requirement("runs:submit:accepted", "202 with taskId, threadId, runId and created", "seed 002, Response"),
    Requirement("runs:submit:durable", "What was answered with 202 survives the server", "ag-ui A.4"),
    Requirement(
        "runs:submit:idempotent", "A repeated run gets the same answer; nothing runs twice", "ag-ui A.4 [chosen]"
    ),
    Requirement("runs:submit:conflict", "A runId with another body is 409 `runId already used`", "ag-ui A.4 [chosen]"),
    Requirement("runs:submit:queue", "A run waits for the one before it", "ag-ui A.4; rule 10"),
    Requirement("runs:protocols:live", "Runs of other protocols on the thread are streamed live", "rule 11"),
    Requirement("runs:submit:refused-leaves-nothing", "A refused run creates no thread", "design, 3"),
    Requirement("runs:auth:401", "Every route requires a key, else 401", "ag-ui A.1"),
    Requirement("runs:auth:scope", "Reading requires the scope read, everything else use", "rule 5"),
    Requirement("runs:tenancy:foreign-403", "Another user's thread is 403 on every route", "ag-ui A.1; rule 2"),
    Requirement("runs:tenancy:unknown-404", "An unknown thread is 404; an id that is not a UUID is 422", "ag-ui A.1"),
    Requirement(
        "runs:agent:routing", "`agent_type` chooses the agent; `worker` is the default agent", "seed 002; rule 4"
    ),
    Requirement("runs:agent:fixed", "A thread's agent does not change", "rule 4"),
    Requirement("runs:paths:unknown", "Unknown paths, methods and media types are problems too", "ag-ui A.1"),
    Requirement(
        "runs:tools:front-end", "A front-end tool is called, and its result comes with the next run", "ag-ui A.3"
    ),
    Requirement(
        "runs:tools:closed", "A call that a new message closes has its result in the run of that message", "rule 19"
    ),
    Requirement(
        "runs:tools:agents-own-wins", "The agent's own tool wins, and the run carries a warning", "ag-ui A.3 [chosen]"
    ),
    Requirement("runs:tools:neither-register-nor-filter", "`tools` leaves the agent's own tools unchanged", "seed 002"),
    Requirement("runs:forged:nothing-executed", "Claims in a history open, settle and show nothing", "design, 3"),
    Requirement("runs:delete:204", "Deleting is 204, also if the thread is gone", "ag-ui A.2; rule 3"),
    Requirement("runs:cancel:accepted", "Cancelling says whether the run will stop", "ag-ui A.7"),
    Requirement(
        "runs:cancel:queued", "A queued run can be cancelled, and its readers receive an end", "ag-ui A.7 [chosen]"
    ),
    Requirement(
        "runs:time:calendar", "A calendar write carries `event_timezone`; an invalid one is a tool error", "seed 002"
    ),
    Requirement("runs:time:order", "The time zone: the tool's argument, the device, the profile, UTC", "seed 002"),
    Requirement("runs:time:visible", "`client_time` reaches the agent", "seed 002"),
    # --- events -------------------------------------------------------------------------------------------------------
    Requirement("runs:specification:requests", "The contract's requests are accepted as written", "seed 002, Examples"),
    Requirement("runs:specification:rules", "Each rule is refused with its own words", "seed 002, Validation Rules"),
    Requirement("runs:specification:history", "A history has the members of the example", "seed 002, History API"),
    Requirement("runs:events:whole", "The stream is AG-UI's own sequence of events", "ag-ui A.5 [chosen]"),
    Requirement("runs:events:extras", "The events carry the additional fields of this service", "ag-ui A.5 [origin]"),
    Requirement("runs:events:no-figures", "Internal figures do not leave the server", "ag-ui A.5 [origin]"),
    Requirement("runs:events:error", "A failed run is RUN_ERROR without internals", "ag-ui A.5"),
    Requirement("runs:events:cancelled", "A cancelled run closes what is open and ends as cancelled", "ag-ui A.7"),
    Requirement("runs:events:left-out", "Content without a form here is left out", "rule 16"),
    Requirement("runs:events:stages", "An agent with stages sends STEP events", "ag-ui A.5 [origin]"),
    Requirement("runs:events:official-clients", "Official clients accept the stream", "ag-ui A.5 [chosen]"),
    Requirement("runs:events:parent", "`parentRunId` is returned with the run", "ag-ui A.3 [chosen]"),
    Requirement("runs:events:ids", "Ids grow along the thread and are functions of the log", "ag-ui A.5; rule 7"),
    Requirement(
        "runs:events:start", "Without a position: the newest run from its start, then on", "ag-ui A.5 [chosen]"
    ),
    Requirement("runs:events:never-issued", "An id that was never issued is a valid position", "ag-ui A.5 [chosen]"),
    Requirement("runs:events:last-event-id", "A malformed position is 422; the header wins", "ag-ui A.5"),
    Requirement("runs:events:idle-limit", "`idle_limit` seconds of silence end the stream", "ag-ui A.5"),
    Requirement("runs:events:keep-alive", "A silent stream sends keep-alives", "ag-ui A.5"),
    Requirement("runs:events:run-filter", "`runId`: only that run, up to its end", "ag-ui A.5"),
    Requirement("runs:events:limit", "Too many open streams of a user are 429", "ag-ui A.5"),
    Requirement("runs:events:slow-reader", "A slow reader slows nothing and loses nothing", "ag-ui A.5"),
    Requirement("runs:events:cuts", "A stream cut anywhere resumes with exactly the rest", "design, 3; ag-ui A.5"),
    Requirement("runs:events:restart", "Positions are valid across restarts", "ag-ui A.5"),
    Requirement("runs:events:live-is-replay", "Live and replayed streams are the same", "design, 3"),
    # --- history ------------------------------------------------------------------------------------------------------
    Requirement("runs:history:fields", "Messages have the fields of their role", "seed 002, HistoryMessage"),
    Requirement("runs:history:clock", "Times are the injected clock's, ISO 8601 in UTC with Z", "ag-ui A.1; rule 30"),
    Requirement(
        "runs:history:hidden",
        "Tool messages, instructions and answers without text are not shown",
        "seed 002; ag-ui A.6; rule 14",
    ),
    Requirement("runs:history:seq", "`seq` counts all messages of the thread from 1", "ag-ui A.6; rule 12"),
    Requirement("runs:history:internal", "Internal prompts are not shown", "ag-ui A.6 [origin]"),
    Requirement("runs:history:text", "Text blocks are joined with a newline", "ag-ui A.6"),
    Requirement("runs:history:running", "An answer appears once it is complete", "ag-ui A.6 [chosen]"),
    Requirement("runs:history:attachments", "Images have newly signed links", "ag-ui A.6"),
    Requirement("runs:history:day", "One response is one day, the UTC date", "ag-ui A.6"),
    Requirement("runs:history:before", "`before` asks for days strictly earlier; an invalid day is 422", "seed 002"),
    Requirement("runs:history:has-more", "`hasMore` says whether there is an earlier day", "seed 002"),
    Requirement("runs:history:newest", "Without a thread id: the newest thread, or none", "seed 002"),
    Requirement("runs:ui-schema:same-compiler", "Event and history have the same tree", "ag-ui A.8"),
    Requirement("runs:ui-schema:seed", "The seed's example compiles to itself", "seed 002"),
    Requirement(
        "runs:history:incomplete", "Answers that were stopped, failed or were cut off are marked", "ag-ui A.6; rule 25"
    ),
    Requirement("runs:threads:list", "A user's threads are listed in pages, newest first", "ag-ui A.2 [chosen]"),
    Requirement("runs:status:get", "A run's status can be read without its events", "ag-ui A.2 [chosen]"),
    Requirement("runs:history:zone", "Days are UTC, or those of a zone that the client names", "ag-ui A.6 [chosen]"),
    Requirement("runs:state:shared", "The state of a run is the thread's, on every protocol", "seed 002; rule 11"),
    Requirement("runs:ui-schema:belongs", "A card belongs to the open answer, else to the next", "ag-ui A.8 [chosen]"),
    Requirement(
        "runs:ui-schema:faults", "A wrong part of a card is logged with the reason; the rest is kept", "ag-ui A.8"
    ),
    Requirement("runs:ui-schema:alone", "A card without text is an answer with an empty text", "ag-ui A.8 [chosen]"),
    Requirement("runs:ui-schema:bad-hint", "An invalid hint is dropped and fails nothing", "ag-ui A.8 [chosen]"),
    Requirement("runs:ui-schema:locale", "The locale is the profile's, else `en`", "ag-ui A.8"),
    Requirement("runs:files:no-link-stored", "No signed link is stored", "seed 002"),
    # --- files --------------------------------------------------------------------------------------------------------
    Requirement(
        "runs:files:upload", "An upload returns bucket, path, mime_type and a signed url", "ag-ui A.7 [origin]"
    ),
    Requirement("runs:files:own", "A user lists and deletes their own uploads only", "ours"),
    Requirement("runs:files:content", "A link needs no key, and the image is sent with its type", "ag-ui A.7 [chosen]"),
    Requirement("runs:files:path", "Objects lie below their owner's folder, whatever its name", "ag-ui A.7"),
    Requirement("runs:files:type", "The bytes match the declared type, else 415", "ag-ui A.7 [chosen]"),
    Requirement("runs:files:size", "10 MiB, else 413; an empty file is 422", "ag-ui A.7 [chosen]"),
    Requirement("runs:files:form", "Anything but a form with one file is refused", "ag-ui A.7 [chosen]"),
    Requirement("runs:files:deleted-with-thread", "Deleting a thread deletes its uploads", "rule 3"),
    Requirement("runs:links:signed-url", "New links are for one's own objects only, else 403", "ag-ui A.7"),
    Requirement("runs:links:every-byte", "A link with any byte changed is refused", "ag-ui A.7 [chosen]"),
    Requirement("runs:links:expiry", "A link is valid for an hour", "ag-ui A.7 [chosen]"),
    Requirement("runs:links:owner", "Another user's link is no attachment", "ag-ui A.3, rule 12"),
    Requirement("runs:links:public-url", "Links use the setting `public_url`", "rule 28"),
    Requirement("runs:links:no-traversal", "Paths that leave the bucket are refused before any lookup", "ag-ui A.7"),
    Requirement("runs:transcribe:input", "Wrong, large and empty recordings are 400 with their codes", "ag-ui A.1"),
    Requirement("runs:transcribe:no-backend", "Without a backend: 502", "ag-ui A.7 [chosen]"),
    Requirement("runs:transcribe:text", "The backend's text is the answer", "ag-ui A.7"),
    Requirement("runs:transcribe:backend-fails", "A backend that fails: 502 without its message", "ag-ui A.1"),
    Requirement("runs:transcribe:names", "A backend is named like a model", "ours"),
    # --- the suite ----------------------------------------------------------------------------------------------------
    Requirement("runs:suite:conversations", "Every conversation of the suite can be held", "ag-ui A; design, 3"),
    Requirement("runs:suite:example", "The example client works unchanged", "ours"),
    Requirement("runs:suite:agreement", "History, events and the standard endpoint agree", "design, 3; rule 11"),
    Requirement(
        "runs:suite:killed", "Readers continue with their cursor after kill -9 and see an end", "ag-ui B.14, 4"
    ),
    # --- answers, the profile, any bytes ------------------------------------------------------------------------------
    Requirement("runs:answers:accepted", "Answers are accepted with 202 and start the run that continues", "rule 22"),
    Requirement("runs:answers:one-by-one", "Answers are accepted one by one; the last one starts the run", "rule 20"),
    Requirement("runs:answers:kinds", "What an answer may say depends on its call, and errors count", "rule 20"),
    Requirement("runs:receipt:new-link", "A new link to the same image does not make another run", "ag-ui A.4"),
    Requirement("runs:aliases:queries", "Queries and forms accept names in snake_case, too", "seed 002"),
    Requirement("runs:answers:once", "Each answer is accepted once", "rule 20; design, 3"),
    Requirement("runs:answers:wrong", "An answer to no open call is refused and executes nothing", "design, 3"),
    Requirement("runs:errors:unsupported", "Front-end tools for an agent without them are 422", "rule 17"),
    Requirement("runs:errors:agent-not-served", "A run on a thread whose agent is gone is 409", "rule 4"),
    Requirement("runs:answers:busy", "Answers are refused while a run is active", "rule 10"),
    Requirement("runs:answers:question", "A question accepts selections or free text", "rule 21, 22"),
    Requirement(
        "runs:answers:sub-agent", "Calls of sub-agents about which a person decides are shown like others", "rule 20"
    ),
    Requirement("runs:answers:tools-and-time-go-on", "The continued run keeps front-end tools and time", "seed 002"),
    Requirement("runs:profile:settings", "A profile has a user's time zone and locale", "rule 6"),
    Requirement("runs:profile:wrong", "An invalid time zone or language tag is 422", "rule 6"),
    Requirement("runs:fuzz:decode", "Any bytes are a body or a refusal", "design, 3"),
    Requirement("runs:fuzz:no-500", "Nothing that a client sends is answered with 5xx", "ag-ui A.1"),
)
