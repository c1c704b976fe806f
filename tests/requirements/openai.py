"""What OpenAI's Responses, Conversations and Models demand of a server, one entry for each rule.

Sources are sections of the protocol's specification. Chat Completions have a table of their own.
"""

from tests.requirements import Requirement


def _of(section: str, *rules: tuple[str, str]) -> tuple[Requirement, ...]:
    """Requirements of one section."""
    return tuple(Requirement(f"openai:{name}", text, f"openai §{section}") for name, text in rules)


def _gap(section: str, name: str, text: str, why: str) -> Requirement:
    return Requirement(f"openai:{name}", text, f"openai §{section}", gap=why)


REQUIREMENTS = (
    *_of(
        "1",
        ("models:list", "`GET /models` lists the agents without their aliases; `created` does not change"),
        ("models:one", "`GET /models/NAME` is one agent, by name or alias; an unknown one is 404 `model_not_found`"),
        ("paths:unknown", "An unknown path is 404 `unknown_url`, another method 405, both in the form of every error"),
        ("paths:off", "The protocol can be switched off, and its path is a setting"),
        ("auth:bearer", "Every path requires a bearer key, which is checked first; a read-only key may only read"),
        ("auth:cors", "Browsers may send the headers of official clients"),
        ("headers:out", "Every answer has `x-request-id`, errors too; JSON answers have `openai-processing-ms`"),
        ("headers:session", "Answers of kept sessions name the session in `X-Dragoman-Session`"),
        ("lists:paging", "Lists take `limit`, `order` and `after`, and say whether there is more"),
    ),
    *_of(
        "2",
        ("request:refused", "A wrong field is 400 with a code that says why, and `param` names it"),
        ("request:nulls", "`null` is the same as absent; unknown fields are ignored"),
        ("request:nothing-stored", "A refused request stores nothing"),
        ("request:media-urls", "Images and files are at `https:` or `data:` URLs; others are refused by their place"),
        ("request:model", "`model` names the agent, absent is the default; a session keeps its own"),
        ("request:instructions", "`instructions` apply to their run alone"),
        ("request:parameters", "Sampling parameters reach the model, and no other run"),
        ("request:tools", "Tools of the application are called by the client, in their run only"),
        ("request:tool-choice", "`none` and `allowed_tools` keep tools from the model"),
        ("request:max-calls", "Behind `max_tool_calls` calls of the server fail unexecuted, and the agent answers"),
        ("request:echo", "A response repeats what its request asked for, and has every field"),
        ("request:system", "`system` and `developer` messages become system entries of the session"),
        ("request:content", "Texts, pictures and files of messages, also in the parts that proxies write"),
    ),
    *_of(
        "3",
        ("items:server-tools", "What the server runs itself is one `mcp_call`, never a `function_call`"),
        ("items:failed", "A failed call is a failed `mcp_call` with the text of the failure"),
        ("items:approval", "A call that needs approval is asked for, granted, denied, and linked to its request"),
        ("items:question", "A question is text, which the next user text answers, by label or in own words"),
        ("items:question-declared", "A declared `AskUserQuestion` is a `function_call`, answered by its output"),
        ("items:reasoning", "Thinking is a `reasoning` item with a summary"),
        ("items:media", "Pictures of an answer are markdown parts of their message; data is left out"),
        ("items:sub-agent", "Of a sub-agent only its call and result are shown, and calls that wait"),
        ("ids:stable", "Ids and numbers are the same in the stream, afterwards, and after a restart"),
    ),
    *_of(
        "4",
        ("session:previous", "`previous_response_id` continues a session"),
        ("session:branch", "An earlier response begins a branch; naming a hidden one switches back"),
        ("session:references", "Item references, ids and call ids of a resent history lead to its session"),
        ("session:past", "A history without known items is the past of a new session"),
        ("session:whole", "A whole history that is in no single session of its agent is the past of a new one"),
        ("session:conversation", "A conversation object gets its agent from its first response"),
        ("session:answers", "Answers are taken one by one, each once; others are refused and store nothing"),
        ("session:unlisted", "A single response is in no list; with a second one its session is"),
        ("session:not-stored", "`store: false` leaves nothing behind; calls can still be answered"),
        ("session:other-protocols", "Sessions of other protocols are conversations here"),
    ),
    *_of(
        "5",
        ("stream:text", "A text turn is streamed from `response.created` to `response.completed` and `[DONE]`"),
        ("usage:sum", "The usage is the sum over the run's model calls, with cached and reasoning tokens"),
        ("stream:equals-json", "The terminal event has the response that JSON answers have"),
        ("stream:ends", "Each stop reason has its status, event and details"),
        ("stream:too-long", "What is too long for the model is refused, or fails, with `context_length_exceeded`"),
        ("stream:replay", "`starting_after` continues a stream at any event, at any time"),
        ("stream:revoked", "A stream whose key is revoked ends with an `error` event; the response continues"),
        ("stream:cut", "After a crash the cut item is incomplete and says which items come again"),
        ("disconnect:cancels", "Closing the connection stops the run, streamed or not"),
        ("disconnect:exceptions", "Background runs, watched runs and `continue` go on"),
        ("background:polled", "A background response is answered at once, polled, and survives a restart"),
        ("background:cancelled", "`cancel` stops a response, and leaves one that is over as it is"),
        ("cancel:waiting", "`cancel` closes the calls that a response left open"),
        ("idempotency:key", "The same key and body get the first response again; another body is 409"),
        ("compact:continues", "A compacted conversation continues in a new session, with the summary as its past"),
        ("compact:up-to", "A response is compacted with what precedes it in its branch"),
        ("compact:refused", "What cannot be compacted is refused, and `param` names the field"),
        ("busy:conflict", "A session that runs is 409 with `Retry-After`"),
    ),
    *_of(
        "7",
        ("conversations:items", "A conversation's items are those of its active branch, inputs and outputs"),
        ("conversations:objects", "Conversations are created, read, changed and deleted"),
        ("responses:deleted", "A deleted response cannot be retrieved; a session's only one takes the session along"),
        ("responses:input-items", "`input_items` lists what the request brought"),
        ("output:schema", "An answer that has to match a schema is repeated until it does, or fails"),
    ),
    *_of(
        "8",
        ("errors:agent-not-served", "A session whose agent is gone can be read; a run is 400, as nothing repeats that"),
        ("abuse:foreign", "Another owner's objects look like unknown ones"),
        ("abuse:forged", "Invented calls and approvals run nothing and change nothing"),
        ("abuse:sizes", "Large, deep and malformed bodies are 400 or 413"),
        ("abuse:fuzz", "No body makes the server fail"),
    ),
    *_of(
        "9",
        ("clients:python", "The official client for Python: create, stream, parse, tools, background, conversations"),
        ("clients:javascript", "The official client for JavaScript does the same"),
        ("clients:ai-sdk", "`@ai-sdk/openai` and `@ai-sdk/open-responses`: several turns, tools, approvals"),
        ("open-responses", "What the compliance suite of Open Responses sends over HTTP is answered by its schemas"),
        ("clients:frameworks", "Pydantic AI and LangChain: a turn, a tool, a second turn"),
        ("conversations", "The common conversations, whole, with restarts and with crashes"),
    ),
    *_of(
        "8.2",
        ("websocket:turns", "A WebSocket answers each message with the events of a stream, one response at a time"),
        ("websocket:unstored", "The next message may continue a response that is not stored; an error ends that"),
        ("websocket:errors", "Failures are an `error` with status and code; the handshake is refused as a request is"),
        ("websocket:close", "Closing stops the response, unless it is to continue; a revoked key closes"),
        ("websocket:limit", "After 60 minutes the connection ends with `websocket_connection_limit_reached`"),
    ),
    _gap(
        "9",
        "compliance",
        "The compliance suite of Open Responses",
        "run by hand, as it is no package; the tests send what it sends",
    ),
)
