"""Agents out of Python files: `FILE.py`, or `FILE.py:NAME` for one of them."""

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from dragoman.agents.base import ServableAgent
from dragoman.core.agent import Agent


class LoadError(Exception):
    """A file has no agents to serve. The message is for the person at the terminal."""


def load(location: str) -> list[Agent]:
    """The agents of a file, in the order in which they stand there.

    Without a name: all that are bound to a public name, except for those that are only another one's sub-agents. The
    file is run as a module, so that what stands under `if __name__ == "__main__"` does not happen; modules beside it
    can be imported by it.

    Args:
        where: `FILE.py`, or `FILE.py:NAME`, where the name is that of an agent or of a list of agents.

    Raises:
        LoadError: there is no such file, it fails, or there is no agent in it.
    """
    path, name = _split_location(location)
    module = _import_file(path)
    if name:
        return _agents_by_name(module, path, name)
    found: list[Agent] = []
    for variable, value in vars(module).items():
        if not variable.startswith("_") and is_agent(value) and not any(value is each for each in found):
            found.append(value)
    below = {id(sub) for agent in found if isinstance(agent, ServableAgent) for sub in agent.subagents}
    served = [agent for agent in found if id(agent) not in below]
    if not served:
        raise LoadError(
            f"{path}: there is no agent in it. Expected was, at the top level, something like "
            f'`assistant = Agent("assistant")`, or an async generator function under `@agent`'
        )
    return served


def is_agent(value: object) -> TypeGuard[Agent]:
    """Whether a value can be served: one of ours, or anything with the parts of `core.agent.Agent`."""
    if isinstance(value, type):
        return False
    return isinstance(value, ServableAgent) or all(hasattr(value, part) for part in ("spec", "tool", "child", "play"))


def _split_location(location: str) -> tuple[Path, str]:
    name = ""
    path = Path(location).expanduser()
    if not path.exists() and ":" in location:
        location, _, name = location.rpartition(":")
        path = Path(location).expanduser()
    if not path.is_file():
        raise LoadError(f"{path}: there is no such file")
    if path.suffix != ".py":
        raise LoadError(f"{path}: a Python file (.py) expected")
    return path.resolve(), name


def _import_file(path: Path) -> ModuleType:
    name = path.stem
    while name in sys.modules:
        known = getattr(sys.modules[name], "__file__", None)
        if known is not None and Path(known) == path:
            return sys.modules[name]
        name += "_"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: it cannot be imported")
    module = module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's code: whatever it raises is told
        del sys.modules[name]
        raise LoadError(f"{path}: {_describe_error(error, path)}") from error
    return module


def _describe_error(error: BaseException, path: Path) -> str:
    """The error with the last line of the file that led to it."""
    words = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"line {line}: {words}" if line is not None else words


def _agents_by_name(module: ModuleType, path: Path, name: str) -> list[Agent]:
    value: object = getattr(module, name, None)
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    agents = [each for each in given if is_agent(each)]
    if agents and len(agents) == len(given):
        return agents
    names = [variable for variable, each in vars(module).items() if is_agent(each)]
    there = f"there are: {', '.join(names)}" if names else "there is none in the file"
    if not hasattr(module, name):
        raise LoadError(f"{path}: there is no agent {name!r}; {there}")
    raise LoadError(f"{path}: {name!r} is a {type(value).__name__}, an agent was expected; {there}")
