"""Load agents from Python files: `FILE.py`, or `FILE.py:NAME` for one of them."""

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from dragoman.agents.base import ServableAgent
from dragoman.core.agent import Agent


class LoadError(Exception):
    """A file has no agents to serve. The message is meant for the terminal."""


def load(location: str) -> list[Agent]:
    """Load the agents of a file, in the order of their definition.

    Without a name, returns all agents bound to a public name, except those that are only sub-agents of another. The
    file is imported as a module: code under `if __name__ == "__main__"` does not run, and modules in the same folder
    can be imported.

    Args:
        location: `FILE.py`, or `FILE.py:NAME`, where NAME is an agent or a list of agents.

    Raises:
        LoadError: the file does not exist, fails to import, or has no agent.
    """
    path, name = _split_location(location)
    module = _import_file(path)
    if name:
        return _agents_by_name(module, path, name)
    public = {id(value): value for name, value in vars(module).items() if not name.startswith("_") and is_agent(value)}
    subagents = {id(sub) for agent in public.values() if isinstance(agent, ServableAgent) for sub in agent.subagents}
    agents = [agent for key, agent in public.items() if key not in subagents]
    if not agents:
        raise LoadError(
            f"{path}: no agent found. Define one at the top level, such as "
            f'`assistant = Agent("assistant")`, or an async generator function under `@agent`'
        )
    return agents


def is_agent(value: object) -> TypeGuard[Agent]:
    """Whether a value can be served: a `ServableAgent`, or any object that has the members of `core.agent.Agent`."""
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
        raise LoadError(f"{path}: no such file")
    if path.suffix != ".py":
        raise LoadError(f"{path}: expected a Python file (.py)")
    return path.resolve(), name


def _import_file(path: Path) -> ModuleType:
    name = path.stem
    while name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file) == path:
            return sys.modules[name]
        name += "_"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: cannot be imported")
    module = module_from_spec(spec)
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # user code may raise anything; all of it is reported
        del sys.modules[name]
        raise LoadError(f"{path}: {_describe_error(error, path)}") from error
    return module


def _describe_error(error: BaseException, path: Path) -> str:
    """The error, and the last line of the file in its traceback."""
    text = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return f"line {line}: {text}" if line is not None else text


def _agents_by_name(module: ModuleType, path: Path, name: str) -> list[Agent]:
    value: object = getattr(module, name, None)
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    agents = [each for each in items if is_agent(each)]
    if agents and len(agents) == len(items):
        return agents
    names = [variable for variable, each in vars(module).items() if is_agent(each)]
    available = f"available agents: {', '.join(names)}" if names else "the file defines no agent"
    if not hasattr(module, name):
        raise LoadError(f"{path}: no agent {name!r}; {available}")
    raise LoadError(f"{path}: expected an agent, but {name!r} is a {type(value).__name__}; {available}")
