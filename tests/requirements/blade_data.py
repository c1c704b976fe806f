"""Blade's requirements for REST, memories, API keys, schedules, share links and archives, in our words.
Sources are sections of the protocol's specification as we build it.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- the basis of REST --------------------------------------------------------------------------------------------
    Requirement("blade:rest:paths", "A part of a path that is written out wins over an id", "blade §§5.3, 13"),
    Requirement(
        "blade:rest:trailing-slash", "Every path answers with and without a trailing slash", "blade §2 [chosen]"
    ),
    Requirement("blade:rest:not-found", "A path out of scope is 404 `Not Found`", "blade §1"),
    Requirement("blade:rest:keys", "Every path wants a bearer key, but for those that are open", "blade §2 [docs]"),
    Requirement(
        "blade:rest:failures-without-details",
        "A fault of the server is 500, without internals, with a reference to the log",
        "blade §15",
    ),
    Requirement("blade:rest:every-refusal", "Every refusal of the core has a status and a code", "blade §15"),
    Requirement(
        "blade:rest:invalid-is-one-sentence",
        "What is invalid is 422 with one sentence that names the field first",
        "blade §2 [chosen]",
    ),
    Requirement("blade:rest:any-body", "Whatever is sent is answered or refused, never a failure", "blade §15"),
    Requirement(
        "blade:rest:described", "The OpenAPI document describes every route of the data, and no other", "design §6"
    ),
    Requirement("blade:specification:objects", "Objects have the members of the examples", "seed 003"),
    Requirement("blade:specification:sent", "Examples of objects are accepted as bodies", "seed 003"),
    Requirement("blade:specification:patches", "Patches have the members of the examples", "seed 003, PatchEnvelope"),
    # --- memories -----------------------------------------------------------------------------------------------------
    Requirement("blade:memories:create", "`POST /memories` is 201 with the memory", "blade §11 [docs]"),
    Requirement("blade:memories:fields", "A memory has all its fields; what is not set is null", "blade §3.5 [seed]"),
    Requirement(
        "blade:memories:bounds",
        "Texts are bounded in characters, content is not blank, kinds are known; any breach is 422",
        "blade §11 [docs, chosen]",
    ),
    Requirement("blade:memories:list", "Memories are listed newest first, by pages, by filters", "blade §11 [docs]"),
    Requirement(
        "blade:memories:keyword",
        "A keyword is part of content or topic in any case, in Chinese as in English",
        "blade §11 [chosen]",
    ),
    Requirement(
        "blade:memories:change",
        'PUT changes what it names, `null` leaves and `""` clears, and sets `updated_at`',
        "blade §11 [docs, chosen]",
    ),
    Requirement("blade:memories:switch", "PATCH disables and enables a memory", "blade §11 [docs]"),
    Requirement("blade:memories:delete", "A deleted memory is 404", "blade §11 [docs]"),
    Requirement(
        "blade:memories:batch",
        "A batch deletes, disables or enables up to 100 memories and counts those that it changed",
        "blade §11 [docs, chosen]",
    ),
    Requirement(
        "blade:memories:injected",
        "A chat with memory on gets memories, its first assistant turn refers to them, and each counts once; with"
        " memory off there is nothing of it",
        "blade §11 [chosen]",
    ),
    Requirement(
        "blade:memories:written",
        "An agent writes a memory with `WriteMemory` if memory is on; its source is the session",
        "blade §11; rehearsal",
    ),
    Requirement("blade:memories:limit", "A user with 10,000 memories gets no more, and the agent is told", "rule 27"),
    Requirement("blade:memories:private", "Viewers of a shared session see no memories", "blade §5.5"),
    Requirement("blade:memories:own", "Another user's memory, or one that never was, is 404", "blade §2 [chosen]"),
    # --- API keys -----------------------------------------------------------------------------------------------------
    Requirement(
        "blade:keys:create", "A key is shown once, in the answer to its creation, which is 201", "blade §12 [docs]"
    ),
    Requirement(
        "blade:keys:form",
        "A key is the prefix and at least 32 random characters; `masked` shows the prefix and the last four",
        "blade §12 [seed, chosen]",
    ),
    Requirement("blade:keys:fields", "An ApiKey has all its fields, `plaintext` is null", "blade §3.5 [seed]"),
    Requirement("blade:keys:works-at-once", "A key works from the moment of its creation", "blade §12"),
    Requirement("blade:keys:last-use", "`last_used_at` is null before the first use and set by it", "blade §12"),
    Requirement("blade:keys:rename", "A key can be renamed", "blade §12 [docs]"),
    Requirement(
        "blade:keys:delete",
        "A deleted key is refused at once, and its connections are closed",
        "blade §12 [docs, chosen]",
    ),
    Requirement("blade:keys:own", "Another user's key is 404", "blade §2 [chosen]"),
    Requirement("blade:keys:limit", "A user with 100 keys creates no more", "rule 27"),
    Requirement("blade:keys:name", "A name has 1 to 50 characters", "blade §12 [docs]"),
    Requirement(
        "blade:keys:scope",
        "A key that may only read makes no keys, none changes one that may more, a new key has the scope `use`",
        "rule 5",
    ),
    # --- schedules ----------------------------------------------------------------------------------------------------
    Requirement("blade:schedules:create", "`POST /scheduled-tasks` is 201 with the task", "blade §13 [docs]"),
    Requirement("blade:schedules:fields", "A ScheduledTask has all its fields, and when it runs next", "blade §3.5"),
    Requirement("blade:schedules:get", "Tasks are listed and read", "blade §13 [docs]"),
    Requirement(
        "blade:schedules:zone", "The zone is the one named, else the user's, else the server's", "blade §13; rule 6"
    ),
    Requirement("blade:schedules:bounds", "Fields out of bounds are 422, and nothing changes", "blade §13 [docs]"),
    Requirement(
        "blade:schedules:cron", "An expression outside of the dialect, or one that never matches, is 422", "blade §13"
    ),
    Requirement("blade:schedules:change", "A change of cron or zone finds the next time anew", "blade §13 [chosen]"),
    Requirement("blade:schedules:start-stop", "Tasks are started and stopped, repeatedly if need be", "blade §13"),
    Requirement("blade:schedules:start-expired", "An expired task cannot be started: 409", "blade §13 [chosen]"),
    Requirement("blade:schedules:expiry", "A task that has expired by its time is disabled then", "blade §13 [chosen]"),
    Requirement("blade:schedules:delete", "A deleted task is 404; what it started goes on", "blade §13 [chosen]"),
    Requirement("blade:schedules:own", "Another user's task is 404", "blade §2 [chosen]"),
    Requirement(
        "blade:schedules:run",
        "A run is a session with the task's title and model that answers the prompt",
        "blade §13 [chosen]",
    ),
    Requirement("blade:schedules:runs", "Runs are listed newest first, with all their fields", "blade §13 [docs]"),
    Requirement(
        "blade:schedules:missed",
        "A time missed by five minutes or more is one failed run; one missed by less still runs",
        "blade §13 [chosen]",
    ),
    Requirement(
        "blade:schedules:overlap", "While the run before goes on, a time is a failed run", "blade §13 [chosen]"
    ),
    Requirement(
        "blade:schedules:waits", "A run that asks waits for its user, and fails after 24 hours", "blade §13 [chosen]"
    ),
    Requirement(
        "blade:schedules:skips-confirmations",
        "With `skip_confirmations` permissions are given, and questions get no answer",
        "blade §13 [chosen]",
    ),
    Requirement(
        "blade:schedules:calendar",
        "The calendar lists when enabled tasks are due in a span, at most 1000 times each",
        "blade §13 [docs, chosen]",
    ),
    Requirement("blade:schedules:preview", "The next times of an expression can be previewed", "ours"),
    Requirement("blade:schedules:once", "Each time fires once, with or without a restart", "blade §13 [chosen]"),
    Requirement("blade:schedules:daylight", "Clocks that jump are read as the table says", "blade §13 [chosen]"),
    Requirement("blade:schedules:year", "A year in five zones misses and doubles nothing", "blade §13"),
    # --- share links --------------------------------------------------------------------------------------------------
    Requirement("blade:share:create", "A link has a token, a URL and an expiry", "blade §5.5 [docs]"),
    Requirement(
        "blade:share:reads",
        "A link shows the turns without a key; never variables or memories",
        "blade §5.5 [docs, chosen]",
    ),
    Requirement("blade:share:expires", "A link ends with its time; without one it lasts", "blade §5.5 [docs]"),
    Requirement("blade:share:revoke", "A link is revoked by its own session alone", "blade §5.5 [docs]"),
    Requirement("blade:share:list", "The owner lists links, without tokens, and revokes by ID", "blade §5.5 [chosen]"),
    Requirement("blade:share:limit", "A session with 100 valid links gets no more", "rule 27"),
    Requirement("blade:share:guesses", "Guesses of links are limited like wrong keys", "blade §5.2 [chosen]"),
    Requirement("blade:share:deleted", "Links go with their session", "blade §5.2 [chosen]"),
    Requirement("blade:share:unknown", "An unknown, revoked or expired token is 404", "blade §5.5 [docs]"),
    Requirement("blade:share:own", "Only the owner makes and revokes links; a viewer gets 403", "blade §§5.5, 15"),
    Requirement("blade:share:bounds", "A time is a whole number of seconds from 1 on, else 422", "blade §5.5 [docs]"),
    Requirement("blade:share:off", "Where public sharing is off, the link calls are 403", "blade §5.5 [chosen]"),
    Requirement("blade:share:token", "Only a digest of a token is stored", "design §4"),
    # --- export and import --------------------------------------------------------------------------------------------
    Requirement(
        "blade:archive:export",
        "An export is a ZIP with manifest, session, turns and history; without variables, keys and memories",
        "blade §5.5 [docs, chosen]",
    ),
    Requirement(
        "blade:archive:round-trip",
        "Texts, calls, results and their order outlive export and import; all ids are new",
        "blade §5.5 [chosen]",
    ),
    Requirement("blade:archive:order", "Results and sub-agents stay where they were", "blade §5.5 [chosen]"),
    Requirement(
        "blade:archive:preview", "A preview shows title, turns, time, format and what is left out", "blade §5.5 [docs]"
    ),
    Requirement("blade:archive:import", "An import is a new session of the importer's", "blade §5.5 [docs]"),
    Requirement("blade:archive:hold-together", "Turns that do not hold together are 422", "blade §5.5 [chosen]"),
    Requirement("blade:archive:broken", "A broken or foreign archive is 422", "blade §5.5 [chosen]"),
    Requirement("blade:archive:outside", "An entry outside of the archive's root is refused", "blade §5.5 [chosen]"),
    Requirement(
        "blade:archive:bounds",
        "An archive is bounded packed, unpacked, in entries, in messages and in depth",
        "blade §5.5 [chosen]",
    ),
    Requirement("blade:archive:own", "Only its owner exports a session", "blade §5.5 [chosen]"),
    Requirement("blade:archive:forged", "An imported call runs nothing, and asks nobody", "design §1, 4"),
)
