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
    # --- catching up --------------------------------------------------------------------------------------------------
    Requirement(
        "blade:catch-up:restart",
        "After a restart sessions, turns and their numbers are as before, and a chat goes on",
        "blade §9 rule 7",
    ),
)
