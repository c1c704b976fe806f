"""What the Model Context Protocol demands of a server whose tools are agents, one entry for each rule, in our words."""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- transport ----------------------------------------------------------------------------------------------------
    Requirement(
        "mcp:transport:envelope",
        "A body is one JSON-RPC message: no batch, an id that is a string or an integer; else 400",
        "2025-06-18 and later, base protocol; Streamable HTTP",
    ),
    Requirement("mcp:transport:abuse", "No body makes the server fail", "mcp §10"),
    Requirement(
        "mcp:transport:media-types",
        "JSON is expected; the client accepts JSON, a stream, or both; with JSON alone a call is answered by JSON",
        "Streamable HTTP; mcp §2 [chosen]",
    ),
    Requirement(
        "mcp:transport:methods",
        "DELETE, and GET without `Last-Event-ID`, are 405: a session is a token, and nothing is sent outside a call",
        "Streamable HTTP; mcp §2 [chosen]",
    ),
    Requirement("mcp:transport:version", "A version that is not served is 400 with those that are", "2026-07-28"),
    Requirement("mcp:transport:cors", "Web pages may send and read the protocol's headers", "mcp §2"),
    # --- keys ---------------------------------------------------------------------------------------------------------
    Requirement("mcp:auth:keys", "Every message wants a bearer key; calls want the scope `use`", "mcp §2"),
    Requirement("mcp:auth:discovery", "Where hosts look for an authorization server is a 404 in JSON", "mcp §2"),
    Requirement(
        "mcp:auth:metadata",
        "With an issuer, the protected resource's metadata name the resource, the issuer and the scopes",
        "RFC 9728 §2, §3.1; MCP 2025-11-25 Authorization",
    ),
    Requirement(
        "mcp:auth:challenge",
        "With an issuer, 401 and 403 name the metadata and the scopes",
        "RFC 9728 §5.1; MCP 2025-11-25 Authorization",
    ),
    Requirement(
        "mcp:auth:audience",
        "Tokens are accepted only if they were issued for this endpoint",
        "RFC 8707 §2; MCP 2025-11-25 Authorization",
    ),
    Requirement(
        "mcp:auth:official-client", "The official client gets a token by itself", "package mcp 2.3, mcp.client.auth"
    ),
    Requirement("mcp:auth:keyless", "Without keys, foreign origins and hosts are refused", "Streamable HTTP, security"),
    # --- versions with sessions ---------------------------------------------------------------------------------------
    Requirement("mcp:old:initialize", "The version that the client wishes, or the newest with sessions", "2025-11-25"),
    Requirement(
        "mcp:old:session-is-signed",
        "The session id is the owner's, is valid for 30 days and after a restart; absent 400, unknown 404",
        "Streamable HTTP, sessions; mcp §3 [chosen]",
    ),
    Requirement(
        "mcp:errors:methods",
        "Unknown methods -32601, wrong parameters -32602, unknown notifications 202",
        "base protocol",
    ),
    Requirement("mcp:errors:limits", "Limits are 429 with `Retry-After`, and leave nothing behind", "mcp §10"),
    # --- tools --------------------------------------------------------------------------------------------------------
    Requirement("mcp:tools:list", "Each agent is a tool, the default one first; secret options are left out", "mcp §5"),
    Requirement("mcp:tools:one-agent", "Each agent has a path with itself as the only tool", "mcp §2"),
    Requirement("mcp:call:new", "A call without a session begins one", "mcp §5.1"),
    Requirement("mcp:call:continue", "A call with a session is its next turn", "mcp §5.1"),
    Requirement("mcp:call:options", "Options change those of the session", "mcp §5.1"),
    Requirement("mcp:call:files", "Images and other files go to agents that take them", "mcp §5"),
    Requirement(
        "mcp:call:refused",
        "Wrong arguments and unknown sessions are results with `isError`, and leave nothing behind",
        "2025-11-25, error handling of tools; mcp §5.1",
    ),
    Requirement("mcp:call:busy", "A message to a session that runs is refused", "mcp §5.1; shared rules, 10"),
    Requirement("mcp:call:wait", "An empty message waits, or returns the newest result; it starts nothing", "mcp §5.1"),
    Requirement("mcp:call:long", "A call is answered with `working` after the configured time", "mcp §5.3"),
    Requirement(
        "mcp:call:twice",
        "The same request again joins its call; a different one with its id is a call of its own",
        "mcp §8.2; decision 47",
    ),
    Requirement(
        "mcp:call:answers-question", "A message answers a question that waits; no text approves anything", "mcp §5.1"
    ),
    Requirement(
        "mcp:result:content", "Text, structured content and the session's handle are in every result", "mcp §5.2"
    ),
    Requirement("mcp:result:blocks", "Images and files are content, or links; data is JSON", "mcp §5.2"),
    Requirement("mcp:result:status", "Stop reasons become a status", "mcp §5.2; shared rules, 24"),
    Requirement("mcp:result:hidden", "Thinking, tool calls and internal errors are in no result", "mcp §5.2"),
    # --- progress -----------------------------------------------------------------------------------------------------
    Requirement("mcp:progress:token", "Progress only with a token; it grows, and ends before the result", "progress"),
    Requirement("mcp:progress:rate", "At most ten messages a second, and one for each call", "mcp §5.4"),
    # --- forms --------------------------------------------------------------------------------------------------------
    Requirement(
        "mcp:forms:question", "A question is a flat form; own words win over a selection", "elicitation; mcp §6"
    ),
    Requirement("mcp:forms:empty", "A form without an answer is shown once more", "mcp §6 [chosen]"),
    Requirement("mcp:forms:cancel", "A form that is closed leaves the call open", "elicitation; mcp §6"),
    Requirement("mcp:forms:approval", "An approval is a choice without a default", "mcp §6 [chosen]"),
    Requirement("mcp:forms:trust", "`allow for this session` is trust", "mcp §6; shared rules, 17"),
    Requirement(
        "mcp:forms:forged",
        "Only an exact answer of the owner to a call that waits is taken",
        "mcp §6, §10; shared rules, 20",
    ),
    Requirement("mcp:forms:one-by-one", "Several calls are asked for one by one", "mcp §6.2"),
    Requirement("mcp:forms:other-protocol", "An answer over another protocol goes on with the call", "mcp §6"),
    Requirement("mcp:forms:absent", "Clients without forms get instructions on how to go on", "mcp §6"),
    Requirement("mcp:forms:setting", "Approvals can be left to other clients; no host answers them then", "mcp §13"),
    # --- broken streams -----------------------------------------------------------------------------------------------
    Requirement("mcp:resume:priming", "From 2025-11-25 on a stream begins with an id", "2025-11-25, Streamable HTTP"),
    Requirement(
        "mcp:resume:continue", "`Last-Event-ID` goes on with a stream, at any age", "Streamable HTTP; mcp §8.1"
    ),
    Requirement("mcp:resume:unknown", "An unknown or foreign event is 404", "mcp §8.1"),
    Requirement("mcp:resume:restart", "A call survives a server that is killed", "mcp §8.1"),
    Requirement("mcp:disconnect:old", "A lost connection cancels nothing", "Streamable HTTP"),
    Requirement("mcp:cancel:request", "`notifications/cancelled` stops the run; no result follows", "cancellation"),
    Requirement("mcp:cancel:waiting", "Cancelling a turn that waits closes its calls", "mcp §8.2"),
    # --- resources ----------------------------------------------------------------------------------------------------
    Requirement("mcp:resources:list", "The user's conversations, newest first", "mcp §9"),
    Requirement("mcp:resources:read", "A conversation as Markdown; unknown and foreign ones look the same", "mcp §9"),
    Requirement(
        "mcp:resources:agent-not-served", "Conversations of removed agents can still be read", "shared rules, 4"
    ),
    Requirement("mcp:resources:setting", "Resources can be turned off", "mcp §3"),
    # --- 2026-07-28 ---------------------------------------------------------------------------------------------------
    Requirement("mcp:new:discover", "`server/discover` names all versions and what the server can do", "2026-07-28"),
    Requirement(
        "mcp:new:results",
        "Results have a type, the server's name and a lifetime; no session",
        "2026-07-28",
    ),
    Requirement("mcp:new:headers", "Headers that disagree with the body, or come twice, are -32020", "2026-07-28"),
    Requirement("mcp:new:meta", "Every request carries its version and the client's capabilities", "2026-07-28"),
    Requirement("mcp:new:statuses", "Statuses follow the codes: 404 for methods, 400 for parameters", "2026-07-28"),
    Requirement(
        "mcp:new:forms", "Forms are part of a result; the repeated call answers them, once", "SEP-2322; mcp §6.1"
    ),
    Requirement(
        "mcp:new:forged",
        "A state of another owner or another call is -32602; forged answers run nothing",
        "mcp §6.1, §10",
    ),
    Requirement(
        "mcp:new:disconnect",
        "A stream that is closed before its result cancels the run, unless somebody else reads it",
        "2026-07-28; mcp §8.2; shared rules, 9",
    ),
    Requirement("mcp:tasks:created", "A long call becomes a task, if the client knows tasks", "SEP-2663; mcp §7"),
    Requirement("mcp:tasks:get", "A task shows what waits, and its result when it is over", "SEP-2663"),
    Requirement("mcp:tasks:update", "Answers to what waits, once; anything else is ignored", "SEP-2663"),
    Requirement("mcp:tasks:cancel", "Cancelling stops the run, or closes the calls that wait", "SEP-2663"),
    Requirement("mcp:tasks:header", "`Mcp-Name` may be missing, and is the task if it is there", "decision 66"),
    Requirement("mcp:tasks:unknown", "Unknown and foreign tasks are -32602; without the extension -32021", "SEP-2663"),
    # --- together -----------------------------------------------------------------------------------------------------
    Requirement(
        "mcp:suite:conversations", "The common conversations run over MCP, as far as it expresses them", "mcp §12"
    ),
    # --- clients ------------------------------------------------------------------------------------------------------
    Requirement("mcp:client:python", "The official Python client works", "mcp §12"),
    Requirement("mcp:client:typescript", "The official TypeScript client works", "mcp §12"),
    Requirement("mcp:client:conformance", "The conformance suite passes, as far as it fits", "mcp §12"),
)
