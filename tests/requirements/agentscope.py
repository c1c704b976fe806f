"""What the Agent API demands of a server, one entry for each rule, in our words. Sources are sections of the protocol's
specification as we build it; "ruling" numbers are those of the decisions where the four protocols meet.
"""

from tests.requirements import Requirement

REQUIREMENTS: tuple[Requirement, ...] = ()
