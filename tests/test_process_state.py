"""What a process has only once: two servers in it share nothing else."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.test_project_rules import PROJECT_ROOT, python_files, text_of

PROCESS_WIDE = {
    "adapters/openai_agents_mcp.py": "a lock for each MCP server, an object that a file of agents makes once",
    "agents/worker_threads.py": "threads, counted for each event loop",
    "engine/instrumentation/metrics.py": "the metrics of a process, as Prometheus collects them",
    "protocols/aap/translate.py": "a cache of one frame",
    "protocols/agui/streams.py": "a cache of one frame",
    "server/logging.py": "what the log of a process must not show",
}
"""Modules with an object that changes, and what it is. All other state belongs to an object that is created with the
server, so that two servers in one process share none.
"""
_EMPTY = r"(?:\[\]|\{\}|(?:set|dict|list|deque|Counter|defaultdict|OrderedDict|Weak\w+)\b(?:\[.*\])?\()"
_GLOBAL = re.compile(rf"^(?:(\w+)(?:: .+)? = (?:{_EMPTY}|(\w+)\()|\s+(global) )", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)(.*(?:\n(?:[ \t].*)?)*)", re.MULTILINE)
_STATE = re.compile(rf"^\s+self\.\w+(?:: .+)? = (?:\d|None|True|False|b?\"\"|{_EMPTY})", re.MULTILINE)


def test_state_belongs_to_objects_that_are_created_with_the_server() -> None:
    sources = {path.relative_to(PROJECT_ROOT / "src/dragoman").as_posix(): text_of(path) for path in source_modules()}
    with_state = {name for text in sources.values() for name, body in _CLASS.findall(text) if _STATE.search(body)}
    found = {
        where
        for where, text in sources.items()
        for name, made_by, _ in _GLOBAL.findall(text)
        if not made_by or made_by in with_state
    }
    assert sorted(found) == sorted(PROCESS_WIDE)


def source_modules() -> Iterator[Path]:
    """Those of the program. `first_agents.py` contains other programs, as text."""
    for path in python_files():
        if path.is_relative_to(PROJECT_ROOT / "src/dragoman") and path.name != "first_agents.py":
            yield path
