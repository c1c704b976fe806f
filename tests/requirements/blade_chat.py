"""Blade's requirements for sessions, turns, patches and sockets, in our words.
Sources are sections of the protocol's specification as we build it.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- the suite ----------------------------------------------------------------------------------------------------
    Requirement(
        "blade:suite:conversations", "Every conversation that Blade can express goes as on every protocol", "blade §18"
    ),
    # --- patches ------------------------------------------------------------------------------------------------------
    Requirement("blade:patches:fold", "Folding a turn's patches gives its end, value for value", "blade §7 G1"),
    Requirement("blade:patches:end-equals-messages", "A turn's end is the entry in the messages", "blade §7 G2"),
    Requirement("blade:patches:content", "Where it is switched on, every patch of a text holds all of it", "blade §7"),
    Requirement(
        "blade:patches:sync",
        "Where it is switched on, `sync` patches hold growing turns whole, and disturb nobody who folds",
        "blade §7; rule 7",
    ),
    Requirement("blade:turns:unparsed", "Arguments that are no JSON object are shown as their text", "rule 18"),
    # --- numbers ------------------------------------------------------------------------------------------------------
    Requirement(
        "blade:numbers:stream",
        "`stream_sequence` counts a session's events, the same live, in every replay and after a restart",
        "blade §6.2; rule 7",
    ),
    Requirement("blade:numbers:entries", "`sequence` counts entries of all loops from 0", "blade §3.2 [seed]"),
    Requirement("blade:chats:one-end", "Every chat has one start and one end", "blade §6.2"),
    # --- catching up --------------------------------------------------------------------------------------------------
    Requirement("blade:catch-up:snapshot", "Who comes in mid-chat goes on from a snapshot", "blade §9 rule 1"),
    Requirement("blade:catch-up:goes-on", "Live events follow a snapshot without a gap", "blade §9 rule 1"),
    Requirement("blade:catch-up:idle", "Nothing is sent for an idle session", "blade §9 rules 1, 2"),
    Requirement("blade:catch-up:resume", "Events after a number are sent again, then live", "blade §9 rules 2, 4"),
    Requirement("blade:catch-up:cut", "A cut connection catches up, nothing lost or doubled", "blade §9 rule 2"),
    Requirement("blade:catch-up:no-socket", "A chat goes on when all sockets have gone", "blade §9 rule 5"),
    Requirement("blade:catch-up:slow", "A slow socket gets a snapshot and disturbs nobody", "blade §9 rule 6"),
    Requirement("blade:catch-up:never-reads", "Who never reads is cut off at a bound", "blade §9 rule 6; design §4"),
    Requirement("blade:socket:unsubscribe", "Who unsubscribes hears no more of the session", "blade §6.1"),
    Requirement(
        "blade:catch-up:restart",
        "After a restart sessions, turns and their numbers are as before, and a chat goes on",
        "blade §9 rule 7",
    ),
    # --- sockets and chats --------------------------------------------------------------------------------------------
    Requirement("blade:socket:connect", "A connection without a valid key is refused with `Unauthorized`", "blade §6"),
    Requirement("blade:socket:transports", "Polling, WebSocket and the upgrade between them work", "blade §6"),
    Requirement("blade:socket:updated", "Changed metadata reaches all sockets of the owner", "blade §6.2 [chosen]"),
    Requirement(
        "blade:socket:lists",
        "Creation, status, rewinding and deletion reach all sockets of the owner, followers included",
        "blade §6.2 [chosen]",
    ),
    Requirement("blade:socket:revoked", "A revoked key's sockets are closed within 5 s", "blade §12 [chosen]"),
    Requirement("blade:socket:stop", "A server that stops lets its sockets go", "blade §9 rule 7"),
    Requirement("blade:chats:order", "The events of a chat come in their documented order", "blade §§6, 6.2"),
    Requirement("blade:chats:acknowledged", "`chat:send` is acknowledged with its `chat_run_id`", "blade §6.1 [sdk]"),
    Requirement("blade:chats:sender-is-subscribed", "Who sends is subscribed", "blade §6 [chosen]"),
    Requirement("blade:errors:unsupported", "An image for an agent without them is refused", "rule 17"),
    Requirement("blade:errors:agent-not-served", "A chat of a session whose agent is gone is refused", "rule 4"),
    Requirement("blade:chats:busy", "A second message is `session_busy`, to its sender alone", "blade §4.1"),
    Requirement("blade:chats:refused", "What is refused is acknowledged and announced", "blade §§6.1, 15"),
    Requirement("blade:chats:nulls", "An optional field of an event may be null", "blade §2 [chosen]"),
    Requirement("blade:chats:left", "A chat right after leaving one is distinguished from it", "blade §16 [sdk]"),
    Requirement("blade:chats:stop", "A stop keeps partial text, cancels calls, and is acknowledged last", "blade §8.2"),
    Requirement("blade:chats:failed", "A failure ends the turn, says why, ends the chat", "blade §6.2"),
    Requirement("blade:chats:limit", "The limit of model calls is `completed` with `max_turns`", "blade §8.1 [chosen]"),
    Requirement("blade:chats:parts", "Images and files are notes with `attachment`", "blade §3.3 [chosen]"),
    Requirement(
        "blade:chats:end-in-messages",
        "How a chat without a complete answer ended is in `chat:end` and on its last turn in the messages",
        "blade §3.2, §6.2; rule 24",
    ),
    Requirement(
        "blade:chats:cut", "A step that a crash cut off is marked, and repeated as a turn of its own", "rule 25"
    ),
    Requirement(
        "blade:attachments:read", "An attachment has a URL for who may read its session", "blade §3.3 [chosen]"
    ),
    Requirement(
        "blade:timelines:runs", "A timeline has the model calls, tools and waits of a run", "docs/protocols/blade.md"
    ),
    Requirement(
        "blade:timelines:access", "A timeline is readable by who may read its session", "docs/protocols/blade.md"
    ),
    Requirement("blade:raw:batches", "Raw sockets get `turn:events` with the documented items", "blade §16 [sdk]"),
    # --- flows --------------------------------------------------------------------------------------------------------
    Requirement("blade:questions:ask", "A question pauses the turn and ends the chat", "blade §8.3 [docs]"),
    Requirement("blade:questions:answer", "The answer is a user turn and completes the paused one", "blade §8.3"),
    Requirement("blade:questions:text", "Text sent with an answer stands in the answer's turn", "blade §8.3"),
    Requirement("blade:questions:check", "A wrong answer changes nothing", "blade §8.3"),
    Requirement("blade:questions:several", "Answers are taken one by one, each in its chat", "rule 20"),
    Requirement("blade:questions:of-tools", "A tool's own questions are no permissions", "blade §8.3 [chosen]"),
    Requirement("blade:questions:superseded", "A new message or a stop cancels what waits", "blade §4.1 [chosen]"),
    Requirement("blade:answers:forged", "What does not answer a call is an error, and changes nothing", "rule 20"),
    Requirement("blade:permissions:ask", "A permission request is a question beside the call", "blade §8.3 [chosen]"),
    Requirement("blade:permissions:session", "`Allow for this session` holds for the session", "rule 17"),
    Requirement("blade:permissions:deny", "A denied call ends as `error`", "blade §8.3; rule 18"),
    Requirement("blade:sub-agents:turns", "A sub-agent's turns have their loop and parent", "blade §8.4 [docs]"),
    Requirement("blade:sub-agents:question", "A question below bubbles up; either id answers it", "blade §8.4"),
    Requirement("blade:modes:turn", "A change of mode is a system turn before the message", "blade §8.5"),
    Requirement("blade:modes:tools", "While planning, tools that act are not offered", "blade §8.5"),
    Requirement("blade:plans:block", "A plan is a `plan_status` block", "blade §8.5"),
    Requirement("blade:headless:result", "A headless chat's end has the result", "blade §8.6"),
    Requirement("blade:headless:asks-nobody", "A headless chat asks nobody", "blade §8.6 [chosen]"),
    Requirement("blade:headless:mode", "A headless chat acts, and leaves the session's mode as it is", "blade §8.5"),
    Requirement("blade:headless:schema", "`output_schema` is met, or the chat fails after 3 tries", "blade §8.6"),
    Requirement("blade:whatif:branch", "What-if keeps so many entries and goes on from there", "blade §8.7"),
    Requirement("blade:whatif:refused", "A refused what-if changes nothing", "blade §8.7; design §3"),
    Requirement("blade:whatif:deprecated", "Entries named by what-if are `deprecated`", "blade §8.7"),
    Requirement("blade:meta:blocks", "`_meta` becomes `tool_bridge` and `tool_ui` blocks", "blade §14"),
    Requirement("blade:meta:check", "A bad card is a notification, not a block", "blade §14 [chosen]"),
    Requirement("blade:meta:model", "The model never sees `_meta`", "blade §14 [docs]"),
    # --- REST ---------------------------------------------------------------------------------------------------------
    Requirement("blade:rest:paging", "Pages have `limit`, `offset`, `total`; out of bounds is 422", "blade §2"),
    Requirement("blade:server:open", "Health, version and configuration need no key", "blade §§2, 5.1"),
    Requirement("blade:server:about", "A caller learns who it is, the agents and the models", "blade §5.1"),
    Requirement("blade:server:described", "The OpenAPI document describes every route", "design §6"),
    Requirement("blade:sessions:create", "`POST /sessions` makes a session of what it is given", "blade §5.2 [docs]"),
    Requirement("blade:sessions:fields", "A session has every field of the seed", "blade §3.1 [seed]"),
    Requirement("blade:sessions:detail", "The detail adds solution, setup, role and `env`", "blade §3.1 [docs]"),
    Requirement("blade:sessions:disable-tools", "Tools can be switched off for a session", "blade §5.2 [docs]"),
    Requirement(
        "blade:sessions:options", "An addition of ours: a session is created with options of its agent", "ours"
    ),
    Requirement("blade:sessions:list", "Pinned ones first, then those changed last", "blade §5.2"),
    Requirement("blade:sessions:search", "`q` finds titles and texts in whatever case", "blade §5.2 [docs]"),
    Requirement("blade:sessions:change", "Title, pin, sharing, memory and variables can be changed", "blade §5.2"),
    Requirement(
        "blade:sessions:change-anytime",
        "Title, pin and sharing can be changed while a chat runs; a viewer is cut off at once",
        "blade §5.2, 5.5",
    ),
    Requirement(
        "blade:sessions:solution",
        "`solution_id` is the one that was set, or the default agent at the creation, and never changes",
        "blade §3.1 [seed]",
    ),
    Requirement("blade:sessions:env", "A session's and a chat's variables never stand in turns", "blade §6.1 [chosen]"),
    Requirement("blade:sessions:foreign", "Another user's session is 404", "blade §2; rule 2"),
    Requirement("blade:sessions:viewer", "A shared session can be read, not changed, by others", "blade §5.5 [chosen]"),
    Requirement("blade:sessions:delete", "A deleted session is gone; again it is 404", "blade §5.2; rule 3"),
    Requirement("blade:sessions:ids", "Ids are `sess_` and a UUID; both forms are taken", "rule 1"),
    Requirement("blade:turns:fields", "A turn has every field of the seed", "blade §3.2 [seed]"),
    Requirement(
        "blade:turns:unique", "Ids of entries, turns and compactions never repeat between sessions", "blade §2"
    ),
    Requirement("blade:turns:results", "A result is the tool's return value, of any type", "blade §3.4; rule 18"),
    Requirement("blade:turns:media", "Media in an answer is a text block with `attachment`", "rule 16"),
    Requirement(
        "blade:sessions:other-protocols",
        "Sessions of other protocols are listed with their current state",
        "rule 11, 21",
    ),
    Requirement("blade:turns:messages", "Messages are a bare array in `sequence` order", "blade §5.3 [docs]"),
    Requirement("blade:branches:checkpoints", "Each message of a user has a checkpoint", "blade §5.4"),
    Requirement("blade:branches:rewind", "Rewinding hides what follows and loses nothing", "blade §5.4"),
    Requirement("blade:branches:switch", "A branch that was left can be continued", "blade §5.4"),
    Requirement(
        "blade:branches:alternatives",
        "The messages name the checkpoints of all versions of an edited or repeated message, an extension",
        "docs/protocols/blade.md",
    ),
    Requirement("blade:branches:checkout", "Checkout shows turns and changes nothing", "blade §5.4 [docs]"),
    Requirement("blade:branches:refused", "Unknown checkpoints are 404, while running 409", "blade §5.4"),
    Requirement("blade:compaction:rest", "`POST …/compact` sums up, or is 409", "blade §10"),
    Requirement("blade:compaction:turn", "A compaction is an entry; swallowed turns are `archived`", "blade §10"),
    Requirement(
        "blade:compaction:saves",
        "A compaction of fewer than two turns, or one that saves no tokens, is `nothing_to_compact`",
        "blade §10",
    ),
    Requirement("blade:compaction:socket", "`chat:compact` does the same", "blade §§6.1, 10"),
    Requirement("blade:tokens:stats", "Context statistics are available", "blade §5.3"),
    Requirement("blade:tokens:count", "Prompts and messages are counted", "blade §5.3"),
    Requirement("blade:scope:absent", "What is out of scope, or not there yet, is 404", "blade §1"),
    Requirement("blade:scope:run-service", "`/api/v1/agent` is the run service's", "rule 28"),
    Requirement("blade:replay:preview", "A preview says whether a session can be replayed, and why not", "blade §5.6"),
    Requirement("blade:replay:plays", "A replay shows the recorded turns, at speed, without a model", "blade §5.6"),
    Requirement("blade:replay:state", "`replay_state` says how far it is, and is pushed", "blade §§5.2, 5.6 [chosen]"),
    Requirement(
        "blade:replay:mismatch", "A different text plays nothing until the client decides", "blade §5.6 [chosen]"
    ),
    Requirement("blade:replay:over", "When the recording is over, nothing runs", "blade §5.6 [chosen]"),
    Requirement("blade:replay:autonomous", "A replay that was left runs live", "blade §5.6"),
    Requirement("blade:replay:pace", "The speed can be changed while it plays; a stop stops it", "blade §5.6"),
    Requirement("blade:replay:refused", "Wrong speeds, other users, whatif and schemas are refused", "blade §5.6"),
    Requirement("blade:replay:source", "A replay says that its recording is gone", "blade §5.6 [chosen]"),
    Requirement(
        "blade:files:workspace",
        "A session has a file area",
        "blade §5.9",
        gap="agents have no file area here; the paths are 404",
    ),
    Requirement("blade:clients:python", "blade-agent-kit works unchanged, in four releases", "blade §16 [sdk]"),
    Requirement("blade:clients:javascript", "The documented flows work over socket.io-client", "blade §§8, 9"),
    Requirement("blade:clients:example", "The example client of the docs works", "blade §8"),
    Requirement("blade:rooms:deleted", "Who follows a deleted session sees its chat's end", "rule 3"),
    Requirement("blade:rooms:lost", "Who follows a session goes on after its store failed", "blade §9 rule 7"),
    Requirement("blade:rooms:left", "A session that nobody waits for or follows is not read on", "blade §9 [chosen]"),
    Requirement("blade:rooms:fault", "A fault in one session harms no other", "blade §15"),
    # --- abuse --------------------------------------------------------------------------------------------------------
    Requirement("blade:abuse:events", "Any payload of an event is acknowledged, and breaks nothing", "blade §6.1"),
    Requirement("blade:abuse:bodies", "Any body is answered below 500, with one sentence", "blade §15"),
    Requirement("blade:abuse:frames", "Frames that are no Socket.IO disturb nobody", "blade §6"),
    Requirement("blade:abuse:half-open", "A connection without a key is closed after 30 s", "blade §6"),
    Requirement("blade:abuse:shares", "Connections count against their owner's share", "blade §15"),
)
