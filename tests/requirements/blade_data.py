"""What Blade demands of a server's REST basis, memories, API keys, schedules, share links and archives, in our words.
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
    Requirement("blade:rest:failures-tell-nothing", "A failure of ours is 500 without internals", "blade §15"),
    Requirement("blade:rest:every-refusal", "Every refusal of the core has a status and a code", "blade §15"),
    Requirement(
        "blade:rest:invalid-is-one-sentence",
        "What is invalid is 422 with one sentence that names the field first",
        "blade §2 [chosen]",
    ),
)
