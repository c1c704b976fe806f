"""For tests of your agents: play conversations without a server and without a model, or serve an app on a free port.

`dragoman.testing.fixtures` has the second as a fixture of pytest.
"""

from dragoman.client.events import Deny
from dragoman.testing.play import AgentFailed, Pending, Played, PlayedCall, UnusedAnswers, play, play_async
from dragoman.testing.scripted import Scripted, ScriptEnded, call, think
from dragoman.testing.serve import Served, serve

__all__ = [
    "AgentFailed",
    "Deny",
    "Pending",
    "Played",
    "PlayedCall",
    "ScriptEnded",
    "Scripted",
    "Served",
    "UnusedAnswers",
    "call",
    "play",
    "play_async",
    "serve",
    "think",
]
