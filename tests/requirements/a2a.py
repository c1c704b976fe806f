"""What Agent2Agent demands of a server of agents, one entry for each rule, in our words."""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- cards --------------------------------------------------------------------------------------------------------
    Requirement("a2a:card:members", "The card has all that 1.0 and 0.3 require, and nothing of tools", "A2A 1.0, 8"),
    Requirement("a2a:card:places", "Each agent has a card; the default agent's is at the root, too", "A2A 1.0, 8.2"),
    Requirement("a2a:card:public", "Cards need no key, unless a setting says so", "a2a §2 [chosen]"),
    Requirement("a2a:card:cached", "Cards have an ETag, and are 304 for it", "A2A 1.0, 8.6"),
    # --- requests -----------------------------------------------------------------------------------------------------
    Requirement("a2a:auth:scopes", "Requests need a key; sending and cancelling the scope `use`", "a2a §2"),
    Requirement(
        "a2a:version:choice",
        "1.x is 1.0; 0.3 or nothing is 0.3 over JSON-RPC; anything else is -32009 and says what to send",
        "A2A 1.0, 3.6",
    ),
    Requirement("a2a:rpc:envelope", "JSON-RPC 2.0: no batches; an id is a string, a number or null", "JSON-RPC 2.0"),
    Requirement("a2a:rpc:methods", "Unknown methods are -32601", "A2A 1.0, 9.5"),
    Requirement("a2a:rpc:notification", "A request without id is executed and answered with 204", "JSON-RPC 2.0"),
    Requirement("a2a:http:paths", "HTTP+JSON has its own paths, media type and form of errors", "A2A 1.0, 11"),
    Requirement("a2a:http:cors", "Web pages may send and read the protocol's headers", "a2a §2"),
    Requirement(
        "a2a:errors:agent-not-served",
        "Tasks of an agent that is no longer served can be read; a message is refused",
        "shared rules, 4",
    ),
    Requirement("a2a:errors:table", "Every refusal has an answer", "A2A 1.0, 5.4"),
    Requirement(
        "a2a:old:stream-errors",
        "In 0.3 a refused stream is an event stream with the error: the official clients take nothing else",
        "a2a-sdk 0.3",
    ),
    Requirement("a2a:errors:unsupported", "Push notifications and extended cards are refused", "A2A 1.0, 3.3.4"),
    Requirement("a2a:extensions:echo", "Extensions in use are named in the answer", "A2A 1.0, 4.6"),
    Requirement("a2a:abuse:fuzz", "No body makes the server fail", "a2a §10"),
    # --- sending ------------------------------------------------------------------------------------------------------
    Requirement("a2a:send:task", "A message begins a task, and the answer is the task at rest", "A2A 1.0, 3.1.1"),
    Requirement("a2a:send:immediately", "With `returnImmediately` the task is returned as it begins", "A2A 1.0, 3.2.2"),
    Requirement(
        "a2a:send:parts",
        "Parts are texts, data, images and files with a media type; anything else is -32005",
        "A2A 1.0, 4.1.6",
    ),
    Requirement("a2a:send:fields", "A wrong field is -32602 and named, and leaves nothing behind", "A2A 1.0, 5.4"),
    Requirement("a2a:send:modes", "A client that can read none of our forms is refused", "A2A 1.0, 3.3.2"),
    Requirement("a2a:send:context", "A context is a session; a name stays what the client wrote", "A2A 1.0, 3.4"),
    Requirement("a2a:send:retry", "The same message again is the same task; other content -32602", "A2A 1.0, 3.1.1"),
    Requirement("a2a:send:queue", "A message to a working context is a task that waits its turn", "a2a §4.1 [chosen]"),
    Requirement("a2a:send:task-id", "A task over takes no message; one at work none either", "A2A 1.0, 3.4.3"),
    # --- tasks --------------------------------------------------------------------------------------------------------
    Requirement("a2a:task:get", "A task is found by its id, with as much history as asked for", "A2A 1.0, 3.1.3"),
    Requirement("a2a:task:states", "Ends have their states, and the failed their code", "A2A 1.0, 4.1.3"),
    Requirement("a2a:task:artifacts", "What the agent says in a step is an artifact; tools do not show", "a2a §5.1"),
    Requirement("a2a:task:history", "The history has the user's messages, questions and answers", "A2A 1.0, 4.1.1"),
    Requirement("a2a:task:list", "Tasks are listed by filters, newest status first, in pages", "A2A 1.0, 3.1.4"),
    Requirement("a2a:task:cancel", "A task is cancelled unless it is over", "A2A 1.0, 3.1.5"),
    Requirement("a2a:task:other-protocols", "A turn of another protocol is a task, too", "shared rules, 11"),
    Requirement("a2a:task:owner", "Another owner's tasks and contexts do not exist", "A2A 1.0, 13.1"),
    Requirement("a2a:task:deleted", "The tasks of a deleted session do not exist", "shared rules, 3"),
    # --- questions and approvals --------------------------------------------------------------------------------------
    Requirement("a2a:ask:question", "A question is `INPUT_REQUIRED`; text or data answers it", "a2a §4.3, 5.2"),
    Requirement("a2a:ask:approval", "An approval is `AUTH_REQUIRED`; data that names the call decides", "a2a §5.2"),
    Requirement("a2a:ask:no-text-approves", "No text approves anything", "a2a §4.3"),
    Requirement("a2a:ask:forged", "A forged answer is refused and changes nothing", "shared rules, 20"),
    Requirement("a2a:ask:partial", "With some calls answered, the others are still asked for", "a2a §5.2"),
    Requirement("a2a:ask:other-protocols", "An answer over another protocol continues the task", "a2a §5.2"),
    Requirement("a2a:ask:superseded", "A message without the task's id closes its calls", "shared rules, 19"),
    # --- streams ------------------------------------------------------------------------------------------------------
    Requirement("a2a:stream:events", "A stream is the task, its artifacts in pieces, and its end", "A2A 1.0, 3.1.2"),
    Requirement("a2a:stream:same-text", "The text of a stream is that of the task", "a2a §6"),
    Requirement("a2a:stream:subscribe", "A snapshot and what follows: no gap and nothing twice", "A2A 1.0, 3.1.6"),
    Requirement("a2a:stream:resume", "After an event's id a stream goes on, at any age", "a2a §6 [chosen]"),
    Requirement("a2a:stream:revoked", "A stream whose key is revoked ends with its binding's error", "a2a §6 [chosen]"),
    Requirement("a2a:stream:over", "A task that is over cannot be subscribed to", "A2A 1.0, 3.1.6"),
    Requirement("a2a:stream:cut", "What a crash cut off is marked, and its step comes again", "shared rules, 25"),
    # --- suites and clients -------------------------------------------------------------------------------------------
    Requirement("a2a:suite:conversations", "The common conversations run over A2A", "shared rules"),
    Requirement("a2a:client:python", "The official client for Python works in 1.0 over both bindings", "a2a §12"),
    Requirement("a2a:client:javascript", "The official client for JavaScript works", "a2a §12"),
)
