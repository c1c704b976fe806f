"""What the standard AG-UI endpoint demands of a server, one entry for each rule, in our words. Sources are sections of the
protocol's specification as we build it; "ruling" numbers are those of the decisions where the four protocols meet.
"""

from tests.requirements import Requirement

REQUIREMENTS = (
    Requirement(
        "ag-ui-b:suite:conversations", "Every conversation of the suite can be held through both clients", "ag-ui B.14"
    ),
    Requirement("ag-ui-b:clients:no-warnings", "The official clients write nothing to their console", "ag-ui B.14"),
    Requirement("ag-ui-b:history:restart", "A thread is the same after a restart of the server", "ag-ui B.9"),
    Requirement(
        "ag-ui-b:connect:after-crash", "`connect` joins a run that a crash cut off and that goes on", "ag-ui B.9"
    ),
)
