"""What AAP version 3 demands of a server, one entry for each rule, in our words. Sources are sections of the protocol's
specification; "rule" numbers refer to `docs/protocols/shared-rules.md`.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- transport ----------------------------------------------------------------------------------------------------
    Requirement("aap:transport:any-prefix", "All paths are relative: the face works below any base path", "aap §1"),
    Requirement(
        "aap:transport:json-utf8",
        "Bodies are JSON in UTF-8, both ways; a lone surrogate is read as U+FFFD",
        "aap §1",
    ),
    Requirement(
        "aap:transport:content-type-without-body", "GET and DELETE with a JSON content type work", "aap §1 [sdk]"
    ),
    Requirement("aap:auth:every-endpoint", "Every endpoint wants a bearer key", "aap §1 [docs]"),
    Requirement(
        "aap:auth:bad-key-is-401",
        "No key, an unknown key and a malformed header are 401 `unauthorized` with `WWW-Authenticate: Bearer`",
        "aap §1 [chosen]",
    ),
    Requirement("aap:auth:scope-is-403", "A known key without the needed scope is 403 `forbidden`", "aap §1 [chosen]"),
    Requirement("aap:auth:meta-needs-key", "`GET /meta` needs a key while keys are on", "aap §1 [chosen]"),
    Requirement("aap:auth:public-meta", "The setting `public_meta` opens `GET /meta` to all", "aap §1 [chosen]"),
    Requirement(
        "aap:auth:keyless-ignores-header", "Without keys the header is ignored, an empty one too", "aap §1 [chosen]"
    ),
    Requirement(
        "aap:tenancy:foreign-is-404", "Another owner's session is 404, never 403, on every path", "aap §1 [chosen]"
    ),
    Requirement(
        "aap:tenancy:foreign-is-unknown",
        "A foreign, a deleted and an unknown session are distinguished by nothing in the answer",
        "aap §1 [chosen]; rule 2",
    ),
    Requirement("aap:tenancy:listing-is-own", "The listing shows the caller's own sessions only", "aap §1 [chosen]"),
    Requirement("aap:cors:preflight-without-key", "`OPTIONS` is answered without a key", "aap §1 [chosen]"),
    Requirement(
        "aap:cors:preflight-allows",
        "The preflight allows GET, POST, DELETE and the headers authorization, content-type, accept and our own",
        "aap §1 [chosen]",
    ),
    Requirement(
        "aap:cors:max-age", "The preflight may be remembered: `Access-Control-Max-Age` is set", "aap §1 [chosen]"
    ),
    Requirement(
        "aap:cors:origin-on-every-answer",
        "Errors, streams and empty answers carry `Access-Control-Allow-Origin` too",
        "aap §1 [chosen]",
    ),
    Requirement(
        "aap:cors:star-with-keys",
        "With keys on, any origin is allowed by default, without credentials",
        "aap §1 [chosen]; rule 29",
    ),
    Requirement(
        "aap:cors:origins-setting", "Allowed origins are a setting that narrows the default", "aap §1 [chosen]"
    ),
    Requirement(
        "aap:cors:keyless-default",
        "Without keys no origin is allowed unless configured",
        "aap §1 [chosen]; rule 29",
    ),
    Requirement(
        "aap:cors:keyless-checks-origin-and-host",
        "Without keys, a request of a foreign origin or for a foreign host is refused",
        "rule 29",
    ),
    Requirement("aap:transport:wrong-type-is-415", "A body of another content type is 415", "aap §1 [chosen]"),
    Requirement("aap:transport:type-parameters", "Parameters of the JSON content type are fine", "aap §1 [chosen]"),
    Requirement("aap:transport:no-type-is-json", "A body without a content type is read as JSON", "aap §1 [chosen]"),
    Requirement(
        "aap:transport:wrong-method-is-405", "A known path with a wrong method is 405 with `Allow`", "aap §1 [chosen]"
    ),
    Requirement(
        "aap:transport:unknown-path-is-404", "An unknown path is 404 `not_found` with an error body", "aap §1 [chosen]"
    ),
    Requirement("aap:transport:trailing-slash", "A trailing slash is tolerated", "aap §1 [chosen]"),
    # --- types --------------------------------------------------------------------------------------------------------
    Requirement("aap:types:null-is-absent", "`null` in an optional field is read as absent", "aap §2 [chosen]"),
    Requirement("aap:types:never-null", "No answer holds `null` in a field of the protocol", "aap §2 [chosen]"),
    Requirement("aap:types:unknown-fields", "Unknown fields of a request are ignored", "aap §2 [chosen]"),
    Requirement(
        "aap:agents:info", "An agent shows name, semantic version, tools, options and capabilities", "aap §2.1"
    ),
    Requirement("aap:agents:options", "Text, secret and select options show their fields and defaults", "aap §2.1"),
    Requirement(
        "aap:agents:unique-options", "An agent with two options of one name cannot be registered", "aap §2.1 [chosen]"
    ),
    Requirement(
        "aap:agents:select-default",
        "A select option's default must be one of its values, at registration",
        "aap §2.1 [chosen]",
    ),
    Requirement(
        "aap:agents:unique-tools",
        "An agent with two tools of one name, exposed or hidden, cannot be registered",
        "aap §2.1 [chosen]",
    ),
    Requirement("aap:agents:trust-default", "A tool reference without `trust` is not trusted", "aap §2.1"),
    Requirement(
        "aap:agents:tools-default-off", "Without `agent.tools` at creation every exposed tool is off", "aap §2.1"
    ),
    Requirement("aap:capabilities:leaves", "Every declared capability is an empty object", "aap §2.1"),
    Requirement(
        "aap:capabilities:default-modes",
        "An agent declares all three modes unless it says otherwise",
        "aap §13 [chosen]",
    ),
    Requirement(
        "aap:capabilities:opt-in",
        "Histories, client tools and images are declared by opting in only",
        "aap §13 [chosen]",
    ),
    Requirement(
        "aap:content:stored-as-sent", "User and tool content comes back exactly as it was sent", "aap §2.2 [chosen]"
    ),
    Requirement("aap:content:assistant-is-blocks", "Assistant content is always a list of blocks", "aap §2.2 [chosen]"),
    Requirement(
        "aap:content:user-blocks", "A user message takes text and image blocks, no others", "aap §2.2 [chosen]"
    ),
    Requirement(
        "aap:content:tool-blocks", "A tool message takes text and image blocks, no others", "aap §2.2 [chosen]"
    ),
    Requirement(
        "aap:content:assistant-seed-blocks",
        "An assistant seed takes text, thinking, tool_use and image blocks, no others",
        "aap §2.2 [chosen]",
    ),
    Requirement(
        "aap:content:turn-roles", "A turn takes user, tool and tool_permission messages, no others", "aap §2.2"
    ),
    Requirement(
        "aap:content:granted-is-boolean", "`granted` is a boolean and is not guessed from other values", "aap §2.2"
    ),
    Requirement(
        "aap:content:permission-never-stored", "Permission messages never show in a history", "aap §2.2, §7.3 [docs]"
    ),
    Requirement(
        "aap:tools:spec", "Exposed tools show name, description and a JSON Schema of their parameters", "aap §2.3"
    ),
    Requirement("aap:tools:empty-description", "A client tool's description is required and may be empty", "aap §2.3"),
    Requirement("aap:tools:parameters-object", "A client tool's parameters are a JSON object", "aap §2.3"),
    Requirement("aap:tools:client-names", "Client tool names are 1 to 64 of `A-Z a-z 0-9 _ -`", "aap §2.3 [chosen]"),
    Requirement("aap:session:info", "A session shows its id, its agent's settings and its client tools", "aap §2.4"),
    Requirement("aap:session:no-tools-key", "Without client tools a session has no `tools` key", "aap §2.4 [sdk]"),
    Requirement(
        "aap:session:options-as-set", "A session shows the options that were set, not the defaults", "aap §2.4 [chosen]"
    ),
    Requirement("aap:session:tools-in-force", "`agent.tools` shows the references in force", "aap §2.4 [chosen]"),
    Requirement(
        "aap:session:id",
        "A session's id is a lower-case dashed UUID of version 7: ordered by time, safe in a path",
        "aap §2.4 [chosen]; rule 1",
    ),
    Requirement("aap:modes:default-none", "A turn without `stream` is answered in mode `none`", "aap §2.5"),
    # --- endpoints ----------------------------------------------------------------------------------------------------
    Requirement("aap:meta:version", "`GET /meta` gives version 3, exactly, and the agents", "aap §3, §14.1"),
    Requirement("aap:meta:exposed-tools-only", "`GET /meta` lists exposed tools only", "aap §3 [docs]"),
    Requirement("aap:create:201", "`POST /sessions` is 201 with the session's id", "aap §3 [docs]"),
    Requirement("aap:create:location", "`POST /sessions` sends `Location` with the session's URL", "aap §3 [chosen]"),
    Requirement("aap:create:does-not-run", "Creating a session never runs the agent", "aap §3 [docs]"),
    Requirement("aap:create:checks-early", "A bad configuration is refused at creation", "aap §3 [chosen]"),
    Requirement("aap:create:agent-required", "`agent` with a `name` is required", "aap §3"),
    Requirement("aap:get:200", "`GET /sessions/:id` is 200 with the session", "aap §3 [docs]"),
    Requirement("aap:delete:204", "`DELETE` is 204 with an empty body", "aap §3 [docs]"),
    Requirement("aap:delete:gone", "A deleted session is gone from every path and from the list", "aap §3 [docs]"),
    Requirement("aap:delete:twice-is-404", "A second `DELETE` is 404", "aap §3 [docs]; rule 3"),
    Requirement(
        "aap:delete:cancels-turn",
        "Deleting cancels the running turn: its tools are cancelled and its stream ends with `turn_stop` `error`",
        "aap §3 [chosen]",
    ),
    Requirement(
        "aap:delete:nothing-stored-after",
        "Nothing of a deleted session is stored afterwards",
        "aap §3 [chosen]; rule 3",
    ),
    Requirement(
        "aap:history:type-required", "A missing or unknown history type is 400 `invalid_history_type`", "aap §3 [sdk]"
    ),
    Requirement("aap:history:asked-key-only", "A history answer holds the asked kind only", "aap §3"),
    Requirement(
        "aap:session:unknown-is-404", "An unknown session is 404 `session_not_found` on every path", "aap §3 [docs]"
    ),
    Requirement("aap:turn:200", "A turn is 200, as JSON or as a stream by `stream`", "aap §3 [docs]"),
    # --- order of checks ----------------------------------------------------------------------------------------------
    Requirement(
        "aap:order:pairwise", "Of two faults the one earlier in the fixed order is answered", "aap §4 [chosen]"
    ),
    Requirement(
        "aap:order:refusal-changes-nothing",
        "A refused request leaves session, history and list byte for byte as they were",
        "aap §4 [chosen]",
    ),
    # --- response modes -----------------------------------------------------------------------------------------------
    Requirement("aap:none:body", "Mode `none` answers once, with `stopReason` and `messages`", "aap §5.1"),
    Requirement(
        "aap:none:messages",
        "`messages` holds all that the request made, in order: assistant messages and server tools' results",
        "aap §5.1 [docs]",
    ),
    Requirement("aap:none:no-echo", "Results that the client sent are not repeated", "aap §5.1"),
    Requirement("aap:sse:headers", "A stream is 200, `text/event-stream`, `no-cache`, unbuffered", "aap §5.2"),
    Requirement("aap:sse:framing", "A frame is an event line, one data line and a blank line, ended by LF", "aap §5.2"),
    Requirement("aap:sse:name-not-in-data", "The event's name stands on its line only", "aap §5.2"),
    Requirement(
        "aap:sse:data-is-object",
        "The data of every event is one JSON object, `{}` where there are no fields",
        "aap §5.2",
    ),
    Requirement(
        "aap:sse:last-frame-closed", "The last frame is closed by a blank line, then the body ends", "aap §5.2"
    ),
    Requirement("aap:sse:heartbeat", "15 s without an event bring a comment line", "aap §5.2 [chosen]"),
    Requirement("aap:sse:unbuffered", "An event leaves the server when it happens", "aap §5.2 [chosen]"),
    Requirement("aap:sse:delta-events", "Mode `delta` has deltas and never whole texts", "aap §5.2"),
    Requirement(
        "aap:sse:message-events", "Mode `message` has one event for each finished block and never deltas", "aap §5.2"
    ),
    Requirement("aap:sse:tool-call-whole", "A `tool_call` is whole in both modes", "aap §5.2"),
    Requirement("aap:sse:results-of-server-tools", "`tool_result` events are of server tools only", "aap §5.2"),
    Requirement(
        "aap:sse:grammar", "A stream follows the grammar: start, answers to permissions, steps, stop", "aap §5.2"
    ),
    Requirement("aap:sse:start-first", "`turn_start` leaves before tools or the model run", "aap §5.2"),
    Requirement(
        "aap:sse:refusal-is-status", "A refusal is an HTTP status, a later failure a `turn_stop`", "aap §5.2 [chosen]"
    ),
    Requirement("aap:sse:no-empty-delta", "No delta is empty", "aap §5.2 [chosen]"),
    Requirement("aap:sse:slow-reader", "A slow reader loses no text and gets it in order", "aap §5.2 [chosen]"),
    Requirement("aap:sse:whole-characters", "A delta ends on a whole character", "aap §5.2 [chosen]"),
    Requirement(
        "aap:modes:equal-content", "The three modes carry the same content, and so does history", "aap §5.2 [chosen]"
    ),
    # --- states of a session ------------------------------------------------------------------------------------------
    Requirement("aap:idle:user-message", "Idle: a user message is stored and runs", "aap §6 state table"),
    Requirement(
        "aap:idle:unknown-answer", "Idle: an answer to an unknown id is 400 `unknown_tool_call`", "aap §6 state table"
    ),
    Requirement(
        "aap:idle:resolved-answer", "Idle: an answer given before is 400 `tool_call_resolved`", "aap §6 state table"
    ),
    Requirement(
        "aap:waiting:all-answers", "Waiting: answers for every open call, in any mix, run", "aap §6 state table"
    ),
    Requirement(
        "aap:waiting:answers-then-user",
        "Waiting: answers come first, then user messages, then it runs",
        "aap §6 state table",
    ),
    Requirement(
        "aap:waiting:some-answers",
        "Waiting: some answers are 400 `tool_results_missing` with the open ids; it still waits",
        "aap §6 state table",
    ),
    Requirement(
        "aap:waiting:user-only",
        "Waiting: a user message closes the open calls as cancelled and runs",
        "aap §6 state table",
    ),
    Requirement("aap:running:busy", "Running: anything is 409 `turn_in_progress`", "aap §6 state table"),
    Requirement(
        "aap:step:input-stored-first", "Input and overrides are stored before `turn_start` leaves", "aap §6 step 1"
    ),
    Requirement(
        "aap:step:permissions-in-order", "Permissions are settled first, each with its `tool_result`", "aap §6 step 2"
    ),
    Requirement(
        "aap:step:assistant-before-tools", "The assistant message is stored before a tool of it runs", "aap §6 step 3"
    ),
    Requirement(
        "aap:step:model-stop-reason", "Without tool calls the turn ends with the model's reason", "aap §6 step 4"
    ),
    Requirement(
        "aap:step:calls-before-results", "All calls of a step are emitted before its first result", "aap §6 step 5"
    ),
    Requirement(
        "aap:step:inline-parallel",
        "Inline tools of a step run in parallel, results come as they are ready",
        "aap §6 step 5",
    ),
    Requirement(
        "aap:step:waits-for-client",
        "A call that needs the client ends the turn with `tool_use`, and no more",
        "aap §6 step 6",
    ),
    Requirement(
        "aap:step:max-steps",
        "After `max_steps` model calls the turn ends with `error`, code `max_steps`",
        "aap §6 step 7",
    ),
    Requirement("aap:step:stored-once", "Each message is stored once", "aap §6"),
    # --- calls --------------------------------------------------------------------------------------------------------
    Requirement("aap:calls:client-tool", "A client tool's call waits for the client's result", "aap §7.1 row 1"),
    Requirement("aap:calls:unparsed", "Arguments that are no JSON object are shown as their text", "rule 18"),
    Requirement("aap:calls:trusted-inline", "A trusted tool runs inline: call and result are seen", "aap §7.1 row 2"),
    Requirement("aap:calls:untrusted-asks", "An untrusted tool waits for a permission", "aap §7.1 row 3"),
    Requirement(
        "aap:calls:hidden-inline", "A hidden tool runs inline and unasked; call and result are seen", "aap §7.1 row 4"
    ),
    Requirement(
        "aap:calls:off-never-runs", "A tool that is off never runs; the result says it was not found", "aap §7.1 row 5"
    ),
    Requirement(
        "aap:calls:unknown-never-runs", "A tool that does not exist gets an inline error result", "aap §7.1 row 5"
    ),
    Requirement(
        "aap:texts:denied", "A denial reads `Tool call denied`, with `: REASON` if there is one", "aap §7.2 row 1"
    ),
    Requirement("aap:texts:not-found", "An unavailable tool reads `Tool not found: NAME`", "aap §7.2 row 2"),
    Requirement(
        "aap:texts:failed", "A tool that raised reads `Tool execution failed: MESSAGE`, no trace", "aap §7.2 row 3"
    ),
    Requirement("aap:texts:string-result", "A string result is the string itself", "aap §7.2 row 4"),
    Requirement("aap:texts:other-result", "Another value is compact JSON without `_meta`", "aap §7.2 row 5; rule 18"),
    Requirement("aap:texts:cancelled", "Calls closed by a user message read so", "aap §7.2 row 6"),
    Requirement("aap:texts:interrupted", "Calls cut by a restart read so", "aap §7.2 row 7"),
    Requirement("aap:calls:failure-goes-on", "A tool's failure does not end the turn", "aap §7.2"),
    Requirement("aap:answers:as-sent-no-echo", "Client results are stored as sent and not echoed", "aap §7.3"),
    Requirement(
        "aap:answers:granted-runs-now", "A granted call runs now, with the stored input, before new text", "aap §7.3"
    ),
    Requirement(
        "aap:answers:granted-opens-none", "In mode `none` the granted result opens `messages`", "aap §7.3 [docs]"
    ),
    Requirement("aap:answers:denied-is-emitted", "A denial is emitted as a `tool_result`", "aap §7.3 [chosen]"),
    Requirement(
        "aap:answers:override-first",
        "An override of the same request counts first: a grant for a tool it takes away is denied as disabled",
        "aap §7.3 [chosen]",
    ),
    Requirement(
        "aap:answers:trust-later",
        "A pending call needs its permission even if its tool is trusted now",
        "aap §7.3 [chosen]",
    ),
    Requirement("aap:answers:reason-of-grant", "A reason beside a grant is not shown", "aap §7.3 [chosen]"),
    Requirement(
        "aap:answers:text-for-permission",
        "A tool message for a call that waits for permission is 400",
        "aap §7.3 [chosen]",
    ),
    Requirement(
        "aap:answers:deny-client-tool", "A denial of a client tool is accepted and stored", "aap §7.3 [chosen]"
    ),
    Requirement(
        "aap:answers:grant-client-tool", "A grant for a client tool is 400 `invalid_request`", "aap §7.3 [chosen]"
    ),
    Requirement("aap:calls:unique-ids", "Call ids are unique over the whole session", "aap §7.4 [chosen]"),
    Requirement(
        "aap:resume:last-assistant-has-all",
        "Waiting: the last assistant message holds all calls of the step",
        "aap §7.5 a",
    ),
    Requirement("aap:resume:open-lack-results", "Waiting: exactly the open calls lack a tool message", "aap §7.5 b"),
    Requirement(
        "aap:resume:client-tools-named", "Waiting: the session's `tools` name the pending client tools", "aap §7.5 c"
    ),
    Requirement(
        "aap:resume:kind-stays", "A pending call keeps its kind whatever an override of tools says", "aap §7.5 [chosen]"
    ),
    # --- overrides ----------------------------------------------------------------------------------------------------
    Requirement(
        "aap:overrides:agent-tools", "`agent.tools` replaces the list; `[]` turns all off; absent keeps", "aap §8 row 1"
    ),
    Requirement("aap:overrides:options", "`agent.options` is merged by key; absent keys stay", "aap §8 row 2"),
    Requirement(
        "aap:overrides:client-tools",
        "`tools` replaces the client tools; `[]` removes all; absent keeps",
        "aap §8 row 3",
    ),
    Requirement(
        "aap:overrides:agent-name",
        "The agent's name may be repeated; another is 400 `agent_name_fixed`",
        "aap §8 row 4",
    ),
    Requirement("aap:overrides:last", "Overrides hold for later turns and show in the session", "aap §8 [docs]"),
    Requirement(
        "aap:overrides:unique-names",
        "A client tool with the name of any tool of the agent, on, off or hidden, is 400 `duplicate_tool_name`",
        "aap §8 [chosen]",
    ),
    # --- options and secrets ------------------------------------------------------------------------------------------
    Requirement("aap:options:effective", "The session's value counts, else the declared default", "aap §9 [docs]"),
    Requirement("aap:options:default-at-run", "Defaults are read when a turn runs", "aap §9 [chosen]"),
    Requirement("aap:options:unknown", "An unknown option is 400 `unknown_option`", "aap §9 [chosen]"),
    Requirement(
        "aap:options:select", "A select value that is not listed is 400 `invalid_option_value`", "aap §9 [chosen]"
    ),
    Requirement("aap:options:strings", "An option value that is no string is 400", "aap §9 [chosen]"),
    Requirement("aap:options:size", "An option value over 64 KiB is 400", "aap §9 [chosen]"),
    Requirement("aap:options:removed", "A session keeps and shows an option that its agent lost", "aap §9 [chosen]"),
    Requirement("aap:secrets:never-shown", "The server shows no secret; sessions show `***`", "aap §9 [docs]"),
    Requirement(
        "aap:secrets:results-unchanged",
        "A tool's result is what the tool returned, whatever the secrets",
        "aap §9 [chosen]",
    ),
    Requirement(
        "aap:secrets:never-stored-plain", "A secret is not in the data folder or a log in the clear", "aap §9 [chosen]"
    ),
    Requirement("aap:secrets:known-without-agent", "A secret stays masked when its agent is gone", "aap §9 [chosen]"),
    Requirement("aap:secrets:stars-keep", "`***` in a turn leaves the secret as it is", "aap §9 [chosen]"),
    Requirement("aap:secrets:stars-at-creation", "`***` at creation gives no secret", "aap §9 [chosen]"),
    # --- seeds --------------------------------------------------------------------------------------------------------
    Requirement("aap:seeds:open-history", "Seeds open the history, in order, system messages included", "aap §10"),
    Requirement("aap:seeds:model-sees", "The agent sees the seeds", "aap §10 [sdk]"),
    Requirement("aap:seeds:system-only-here", "System messages come as seeds only", "aap §10"),
    Requirement("aap:seeds:no-permission", "A permission among the seeds is 400", "aap §10 [chosen]"),
    Requirement("aap:seeds:orphan-result", "A seeded result without an earlier call is 400", "aap §10 [chosen]"),
    Requirement("aap:seeds:second-result", "A second seeded result of one call is 400", "aap §10 [chosen]"),
    Requirement("aap:seeds:images", "Images among the seeds need the capability", "aap §10 [chosen]"),
    Requirement(
        "aap:seeds:open-calls", "Open calls of the last assistant seed make the session wait", "aap §10 [chosen]"
    ),
    Requirement(
        "aap:seeds:disabled-tool",
        "A seeded open call of a disabled tool waits for permission; a grant answers `Tool not found`",
        "aap §10 [chosen]",
    ),
    Requirement("aap:seeds:open-calls-further-back", "Open calls further back are 400", "aap §10 [chosen]"),
    # --- history ------------------------------------------------------------------------------------------------------
    Requirement("aap:history:full", "`full` is exact, leaves nothing out and only grows", "aap §11 [docs]"),
    Requirement("aap:history:compacted", "`compacted` equals `full` before the first compaction", "aap §11 [chosen]"),
    Requirement("aap:history:empty", "A new session's history is `[]`", "aap §11"),
    Requirement(
        "aap:history:undeclared", "A kind that is not declared is 404 `history_not_supported`", "aap §11 [docs]"
    ),
    Requirement("aap:history:at-acceptance", "The user message shows from its acceptance on", "aap §11 [chosen]"),
    Requirement("aap:history:no-open-text", "Text still being streamed is not in the history", "aap §11 [chosen]"),
    Requirement(
        "aap:history:cut-step", "A step cut by an error keeps its text and drops its calls", "aap §11 [chosen]"
    ),
    Requirement(
        "aap:history:compaction",
        "A compaction is not shown to clients, splits no call from its result, and leaves `full` as it was",
        "aap §11",
    ),
    Requirement("aap:history:no-foreign-system", "System entries of other origin than seeds do not show", "rule 14"),
    # --- listing ------------------------------------------------------------------------------------------------------
    Requirement("aap:list:sessions", "The listing gives whole sessions, `next` absent at the end", "aap §12 [docs]"),
    Requirement("aap:list:newest-first", "Newest first, 50 on a page", "aap §12 [chosen]"),
    Requirement("aap:list:limit", "`limit` takes 1 to 200", "aap §12 [chosen]"),
    Requirement(
        "aap:list:stable-cursor", "Sessions that come and go cause neither repeats nor gaps", "aap §12 [chosen]"
    ),
    Requirement("aap:list:bad-cursor", "A cursor that we did not make is 400 `invalid_cursor`", "aap §12 [chosen]"),
    # --- undeclared capabilities --------------------------------------------------------------------------------------
    Requirement(
        "aap:undeclared:stream-mode",
        "A mode not declared is 400 `unsupported_stream_mode`, `none` too",
        "aap §13 row 2",
    ),
    Requirement(
        "aap:undeclared:client-tools", "Client tools not declared are 400; an empty list is fine", "aap §13 row 3"
    ),
    Requirement("aap:undeclared:image", "Images not declared are 400, in messages, seeds and results", "aap §13 row 4"),
    Requirement("aap:undeclared:image-url", "Other image URLs are 400 `image_unsupported`", "aap §13 row 5"),
    Requirement("aap:undeclared:internal-tool", "Calls of internal tools are unseen, on every protocol", "rule 16"),
    Requirement("aap:undeclared:tool", "A server tool that is not exposed is 400 `unknown_tool`", "aap §13 row 6"),
    # --- what official clients rely on --------------------------------------------------------------------------------
    Requirement("aap:clients:error-text", "`error` is one readable sentence, `code` a stable word", "aap §14.2, §16"),
    Requirement(
        "aap:clients:rebuild", "A client that folds the events has the server's full history", "aap §14.3-5, §19"
    ),
    Requirement(
        "aap:clients:answers-last-only",
        "A client that answers from the last assistant message answers all",
        "aap §14.4, §14.7",
    ),
    Requirement("aap:clients:unchanged-left-out", "Later turns may leave out what did not change", "aap §14.8"),
    Requirement(
        "aap:clients:playground", "All options sent at creation, booleans as trust, redacted values back", "aap §14.9"
    ),
    # --- where the protocol is silent ---------------------------------------------------------------------------------
    Requirement(
        "aap:turn:busy-is-409", "A second turn is 409 with `Retry-After: 1`, the first is untouched", "aap §15 row 1"
    ),
    Requirement(
        "aap:turn:unknown-call", "An unknown call id is 400 `unknown_tool_call`, also while waiting", "aap §15 row 2"
    ),
    Requirement("aap:turn:resolved-call", "An id answered before is 400 `tool_call_resolved`", "aap §15 row 3"),
    Requirement("aap:turn:same-id-twice", "The same id twice in a request is 400 `invalid_request`", "aap §15 row 4"),
    Requirement(
        "aap:turn:missing-answers", "Missing answers are 400 with `missing`, nothing is stored", "aap §15 row 5"
    ),
    Requirement("aap:turn:user-closes-calls", "A user message over open calls closes them", "aap §15 row 6; rule 19"),
    Requirement("aap:turn:several-users", "Several user messages are stored in order", "aap §15 row 7"),
    Requirement("aap:turn:answer-after-user", "An answer after a user message is 400", "aap §15 row 7"),
    Requirement("aap:turn:no-messages", "Empty or missing `messages` are 400 `invalid_request`", "aap §15 row 8"),
    Requirement(
        "aap:errors:agent-not-served",
        "The history of a session whose agent is gone can be read; a turn is 409 `agent_not_served`",
        "aap §16 [chosen]",
    ),
    Requirement("aap:create:unknown-agent", "An unknown agent is 404 `unknown_agent`", "aap §15 row 9"),
    Requirement("aap:turn:bad-names", "Bad option values, options and tools are 400 in turns too", "aap §15 row 10"),
    Requirement("aap:turn:duplicate-tools", "Two tools of one name are 400 `duplicate_tool_name`", "aap §15 row 11"),
    Requirement("aap:turn:unknown-mode", "An unknown `stream` is 400 `invalid_request`", "aap §15 row 12"),
    Requirement("aap:turn:bad-json", "Malformed JSON is 400 `invalid_json`", "aap §15 row 13"),
    Requirement(
        "aap:turn:oversized", "A body over the limit is 413 with `limit`; the connection closes", "aap §15 row 14"
    ),
    Requirement("aap:turn:image", "An unsupported image is 400 `image_unsupported`", "aap §15 row 15"),
    Requirement(
        "aap:turn:disconnect-goes-on", "A turn goes on without its reader, in every mode", "aap §15 row 16; rule 9"
    ),
    Requirement(
        "aap:turn:failure", "A failure is one `turn_stop` `error`, or 200 with what there was", "aap §15 row 17"
    ),
    Requirement(
        "aap:turn:restart",
        "A cut turn goes on after a restart or is closed; started server calls read interrupted, client calls stay",
        "aap §15 row 18; rule 25",
    ),
    Requirement(
        "aap:turn:restart-cut",
        "After a cut message comes `message_cut` with its content, which ends the block in clients that do not know it",
        "aap §14 row 3; rule 25",
    ),
    Requirement("aap:turn:inline-order", "Results of parallel tools come in the order of completion", "aap §15 row 19"),
    Requirement("aap:turn:delete-cancels", "Deleting a session cancels its turn", "aap §15 row 20"),
    Requirement("aap:turn:other-client-answers", "Another key of the same owner may answer", "aap §15 row 21"),
    Requirement("aap:turn:history-while-running", "The history can be read while a turn runs", "aap §15 row 22"),
    Requirement("aap:limits:text", "A message text over 1 MiB is 400 `limit_exceeded`", "aap §15 row 23"),
    Requirement("aap:limits:seeds", "More than 1,000 seeds are 400 `limit_exceeded`", "aap §15 row 23"),
    Requirement("aap:limits:client-tools", "More than 128 client tools are 400 `limit_exceeded`", "aap §15 row 23"),
    Requirement("aap:limits:schema", "A tool schema over 64 KiB is 400 `limit_exceeded`", "aap §15 row 23"),
    # --- errors -------------------------------------------------------------------------------------------------------
    Requirement(
        "aap:errors:body", "Every error body has `error` and `code`, and the extra keys of its code", "aap §16"
    ),
    Requirement("aap:errors:table", "Every refusal of the core has its answer, and every code one status", "aap §16"),
    Requirement("aap:errors:path", "`invalid_request` names the path of the field", "aap §16"),
    Requirement("aap:errors:allowed", "`invalid_option_value` lists what is allowed", "aap §16"),
    Requirement("aap:errors:supported", "`unsupported_stream_mode` lists what is supported", "aap §16"),
    Requirement("aap:errors:rate-limited", "Too many requests are 429 `rate_limited` with `Retry-After`", "aap §16"),
    Requirement("aap:errors:internal", "A fault of ours is 500 `internal` with a reference and no details", "aap §16"),
    Requirement("aap:errors:shutting-down", "A server that stops answers 503 with `Retry-After`", "aap §16"),
    Requirement("aap:stops:end-turn", "A finished turn stops with `end_turn`", "aap §16 [docs]"),
    Requirement("aap:stops:tool-use", "A turn that needs the client stops with `tool_use`", "aap §16 [docs]"),
    Requirement("aap:stops:max-tokens", "The model's limit stops with `max_tokens`", "aap §16 [docs]"),
    Requirement("aap:stops:refusal", "A refusal stops with `refusal`", "aap §16 [docs]"),
    Requirement("aap:stops:error", "A failure after the start stops with `error`", "aap §16 [docs]"),
    Requirement(
        "aap:stops:idle-after", "After max_tokens, refusal and error a new user message runs", "aap §16 [chosen]"
    ),
    Requirement(
        "aap:stops:cut-call-dropped", "A call cut off by `max_tokens` is dropped, never run", "aap §16 [chosen]"
    ),
    # --- additions ----------------------------------------------------------------------------------------------------
    Requirement(
        "aap:meta-field:only-there", "What is ours stands in `_meta`, headers or new paths only", "aap §17 [chosen]"
    ),
    Requirement("aap:schema:responses", "Every request and response fits the published schema", "seeds 000 and 001"),
    Requirement("aap:meta-field:turn-start", "`turn_start` `_meta` has `turnId`", "aap §17 [chosen]"),
    Requirement(
        "aap:meta-field:turn-stop",
        "`turn_stop` `_meta` has `usage`, and `error` with code and message",
        "aap §17 [chosen]",
    ),
    Requirement("aap:meta-field:session", "Session `_meta` has times, status and labels", "aap §17 [chosen]"),
    Requirement("aap:meta-field:creation", "`_meta` of a new session sets its title and labels", "aap §17 [chosen]"),
    Requirement("aap:meta-field:pending", "Session `_meta` lists the open calls with their kinds", "aap §17 [chosen]"),
    Requirement("aap:ids:from-one", "`id:` lines number a turn's events from 1", "aap §17 [chosen]"),
    Requirement(
        "aap:idempotency:create", "A repeated creation gives the first answer and no second session", "aap §17 [chosen]"
    ),
    Requirement("aap:idempotency:turn", "A repeated turn gives the first answer and runs once", "aap §17 [chosen]"),
    Requirement("aap:idempotency:stream", "A repeated streaming turn gives the same stream", "aap §17 [chosen]"),
    Requirement("aap:idempotency:parallel", "50 duplicates at once run one turn", "aap §17 [chosen]"),
    Requirement(
        "aap:idempotency:other-body", "The same key with another body is 409 `idempotency_conflict`", "aap §17 [chosen]"
    ),
    Requirement(
        "aap:idempotency:other-request",
        "A key that another request used never gives that one's answer",
        "aap §17 [chosen]",
    ),
    Requirement("aap:idempotency:by-owner", "Keys of different owners do not meet", "aap §17 [chosen]"),
    Requirement("aap:idempotency:refused", "A refused request leaves its key free", "aap §4, §17 [chosen]"),
    Requirement("aap:idempotency:a-day", "A key is remembered for at least 24 hours", "aap §17 [chosen]"),
    Requirement("aap:idempotency:restart", "Keys are remembered over a restart", "aap §17 [chosen]"),
    # --- the events route ---------------------------------------------------------------------------------------------
    Requirement("aap:events:after-n", "`Last-Event-ID: N` continues the newest turn strictly after frame N", "rule 8"),
    Requirement(
        "aap:events:every-cut", "After a cut anywhere, even inside a frame, the rest is exactly the rest", "rule 8, 7"
    ),
    Requirement("aap:events:live-cut", "A reader that left a running turn joins again without gap or repeat", "rule 8"),
    Requirement(
        "aap:events:closes", "A continued turn closes after `turn_stop`; after the last frame it is empty", "rule 8"
    ),
    Requirement(
        "aap:events:mode", "It goes on in the turn's own mode, delta for `none`; `stream` chooses another", "rule 8"
    ),
    Requirement("aap:events:turn", "`turn` names an older turn", "rule 8"),
    Requirement("aap:events:replay-at-any-age", "A replay of an old turn is byte for byte what was sent", "rule 7"),
    Requirement(
        "aap:events:watch", "Without `Last-Event-ID` it shows every later turn live, whoever began it", "rule 8, 11"
    ),
    Requirement("aap:events:watch-running", "A watch that joins a running turn gets it from its start", "rule 8"),
    Requirement("aap:events:watch-ids", "A watch's ids are `TURN_ID/N`, and continue it over finished turns", "rule 8"),
    Requirement(
        "aap:events:bad-position",
        "Garbage, negative, foreign and future positions are 400 `invalid_cursor`",
        "rule 8",
    ),
    Requirement("aap:events:restart", "Positions hold over a restart", "rule 7"),
    Requirement("aap:events:deleted", "A watch ends when its session is deleted", "rule 3, 8"),
    Requirement(
        "aap:stop:ends-the-turn",
        "`POST /sessions/:id/stop` ends the running turn with `error` and the code `cancelled`; what was said stays",
        "rule 8, 24",
    ),
    Requirement("aap:stop:nothing-runs", "With nothing running and nothing waiting it says so", "rule 8"),
    Requirement(
        "aap:stop:waiting", "Calls that wait for the user are cancelled, and it says `stopped: true`", "rule 19"
    ),
    # --- where the protocols meet -------------------------------------------------------------------------------------
    Requirement(
        "aap:meeting:image-in-answer", "An image in an answer is in `none` and history, in no stream event", "rule 16"
    ),
    Requirement(
        "aap:meeting:data-is-text", "A data block of an answer is its JSON as text in every mode and history", "rule 16"
    ),
    Requirement("aap:meeting:no-plan-no-card", "Plans and UI schemas do not show", "rule 16"),
    Requirement("aap:meeting:sub-agent", "Of a sub-agent only the call and its result show", "rule 16"),
    Requirement(
        "aap:meeting:sub-agent-waits",
        "A call of a sub-agent that waits is pending in place of the sub-agent's own call",
        "rule 20",
    ),
    Requirement("aap:meeting:tool-meta-removed", "A tool's `_meta` is removed from its result", "rule 16, 18"),
    Requirement(
        "aap:meeting:question-by-text", "A question is a pending server call that a tool message answers", "rule 21"
    ),
    Requirement(
        "aap:meeting:question-by-json", "A question's answer may be selections and custom text as JSON", "rule 21"
    ),
    Requirement("aap:meeting:question-granted", "A grant for a question is 400", "rule 21"),
    Requirement("aap:meeting:question-declined", "A denied question is declined", "rule 21"),
    Requirement("aap:meeting:max-steps", "The core's `max_steps` shows as `error` with that code", "rule 24"),
    Requirement("aap:meeting:alias-is-not-session", "A string that is no UUID names no session of AAP", "rule 1"),
    Requirement("aap:meeting:upper-case-id", "A session's id is found in any case", "rule 1"),
    # --- worked -------------------------------------------------------------------------------------------------------
    Requirement("aap:worked:exchanges", "The worked exchanges hold, byte for byte where ids allow", "aap §18"),
    Requirement(
        "aap:suite:conversations", "The conversations hold in process, over a socket and over restarts", "aap §19"
    ),
    Requirement("aap:suite:race", "If clients race on one session, one wins and the others are refused", "aap §19"),
    Requirement("aap:suite:leave-anywhere", "A client may leave at every event; the turn is whole", "aap §19"),
)
