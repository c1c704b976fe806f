"""What Blade demands of a server's sessions, turns, patches and sockets, in our words.
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
    # --- numbers ------------------------------------------------------------------------------------------------------
    Requirement(
        "blade:numbers:stream",
        "`stream_sequence` counts a session's events, the same live, in every replay and after a restart",
        "blade §6.2; rulings, 7",
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
    Requirement("blade:socket:revoked", "A revoked key's sockets are closed within 5 s", "blade §12 [chosen]"),
    Requirement("blade:chats:order", "The events of a chat come in their documented order", "blade §§6, 6.2"),
    Requirement("blade:chats:acknowledged", "`chat:send` is acknowledged with its `chat_run_id`", "blade §6.1 [sdk]"),
    Requirement("blade:chats:sender-is-subscribed", "Who sends is subscribed", "blade §6 [chosen]"),
    Requirement("blade:chats:busy", "A second message is `session_busy`, to its sender alone", "blade §4.1"),
    Requirement("blade:chats:refused", "What is refused is acknowledged and announced", "blade §§6.1, 15"),
    Requirement("blade:chats:stop", "A stop keeps partial text, cancels calls, and is acknowledged last", "blade §8.2"),
    Requirement("blade:chats:failed", "A failure ends the turn, says why, ends the chat", "blade §6.2"),
    Requirement("blade:chats:limit", "The limit of model calls is `completed` with `max_turns`", "blade §8.1 [chosen]"),
    Requirement("blade:chats:parts", "Images and files are notes with `attachment`", "blade §3.3 [chosen]"),
    Requirement("blade:raw:batches", "Raw sockets get `turn:events` with the documented items", "blade §16 [sdk]"),
    # --- flows --------------------------------------------------------------------------------------------------------
    Requirement("blade:questions:ask", "A question pauses the turn and ends the chat", "blade §8.3 [docs]"),
    Requirement("blade:questions:answer", "The answer is a user turn and completes the paused one", "blade §8.3"),
    Requirement("blade:questions:check", "A wrong answer changes nothing", "blade §8.3"),
    Requirement("blade:questions:several", "Answers are taken one by one, each in its chat", "rulings, 20"),
    Requirement("blade:questions:superseded", "A new message or a stop cancels what waits", "blade §4.1 [chosen]"),
    Requirement("blade:permissions:ask", "A permission request is a question beside the call", "blade §8.3 [chosen]"),
    Requirement("blade:permissions:session", "`Allow for this session` holds for the session", "rulings, 17"),
    Requirement("blade:permissions:deny", "A denied call ends as `error`", "blade §8.3; rulings, 18"),
    Requirement("blade:sub-agents:turns", "A sub-agent's turns have their loop and parent", "blade §8.4 [docs]"),
    Requirement("blade:sub-agents:question", "A question below bubbles up; either id answers it", "blade §8.4"),
    Requirement("blade:modes:turn", "A change of mode is a system turn before the message", "blade §8.5"),
    Requirement("blade:modes:tools", "While planning, tools that act are not offered", "blade §8.5"),
    Requirement("blade:plans:block", "A plan is a `plan_status` block", "blade §8.5"),
    Requirement("blade:headless:result", "A headless chat's end has the result", "blade §8.6"),
    Requirement("blade:headless:asks-nobody", "A headless chat asks nobody", "blade §8.6 [chosen]"),
    Requirement("blade:headless:schema", "`output_schema` is met, or the chat fails after 3 tries", "blade §8.6"),
    Requirement("blade:whatif:branch", "What-if keeps so many entries and goes on from there", "blade §8.7"),
    Requirement("blade:whatif:deprecated", "Entries named by what-if are `deprecated`", "blade §8.7"),
    Requirement("blade:meta:blocks", "`_meta` becomes `tool_bridge` and `tool_ui` blocks", "blade §14"),
    Requirement("blade:meta:check", "A bad card is a notification, not a block", "blade §14 [chosen]"),
    Requirement("blade:meta:model", "The model never sees `_meta`", "blade §14 [docs]"),
)
