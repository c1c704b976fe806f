"""What the AG-UI run service demands of a server, one entry for each rule, in our words. Sources are seed 002 and part
A of the protocol's specification as we build it; "ruling" numbers are those of the decisions where the protocols meet.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    # --- the rules of a run -------------------------------------------------------------------------------------------
    Requirement("runs:rules:table", "Twenty rules are checked in a fixed order", "ag-ui A.3 [chosen]"),
    Requirement(
        "runs:rules:border", "Each rule accepts what lies just inside and refuses what lies outside", "ag-ui A.3"
    ),
    Requirement("runs:rules:order", "Of several broken rules the first is the answer", "ag-ui A.3 [chosen]"),
    Requirement("runs:rules:messages", "Each rule answers 422 with its exact sentence; nothing is made", "seed 002"),
    Requirement(
        "runs:rules:shape", "A wrong shape is `invalid RunAgentInput` with the fields in `errors`", "ag-ui A.3"
    ),
    Requirement("runs:rules:pictures", "Pictures are checked one by one, before they are counted", "ag-ui A.3, traps"),
    Requirement("runs:rules:image-part", "AG-UI 1.0's image part means what `binary` means", "ag-ui A.3 [chosen]"),
    Requirement("runs:aliases:every-depth", "Every field is taken in camelCase and in snake_case", "seed 002"),
    Requirement("runs:aliases:opaque", "Names inside opaque values are as they are", "ag-ui A.3 [chosen]"),
    Requirement("runs:aliases:camel-wins", "Where both spellings are there, camelCase wins", "ag-ui A.3 [chosen]"),
    Requirement("runs:errors:problem", "Errors are problem details with `code`", "ag-ui A.1 [chosen]"),
)
