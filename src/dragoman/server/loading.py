"""Load agents from Python files: `FILE.py`, or `FILE.py:NAME` for one of them.

Objects of other frameworks are agents too. Their adapters are imported only when a file has an object of the framework.
"""

import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeGuard, runtime_checkable

from dragoman.agents.base import ServableAgent
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.serving import is_agent_name
from dragoman.core.agent import Agent

ADAPTERS = {
    "pydantic_ai.agent": "pydantic_ai",
    "langgraph.pregel": "langgraph",
    "agents.run_context": "openai_agents",
}
"""The frameworks' adapters, by a module that is loaded whenever an agent of the framework exists.

Not by the top module alone: a project's own package may be called `agents`.
"""

FACTORY_NAME = re.compile(r"(make|create|build|get)_")
"""How the names of functions begin that make an agent."""
_REMOTE = re.compile(r"[A-Za-z0-9_.-]+=([a-z0-9-]+\+)?https?://")


class LoadError(Exception):
    """A file has no agents to serve. The message is meant for the terminal."""


def load(location: str) -> list[Agent]:
    """Load the agents of a file, in the order of their definition.

    Without a name, returns all agents bound to a public name, except those that are only sub-agents of another. The
    file is imported as a module: code under `if __name__ == "__main__"` does not run, and modules in the same folder
    can be imported.

    Args:
        location: `FILE.py`, or `FILE.py:NAME`, where NAME is an agent or a list of agents; or `NAME=PROTOCOL+URL`, an
            agent that runs on another server.

    Raises:
        LoadError: the file does not exist, fails to import, or has no agent.
    """
    if is_remote(location):
        from dragoman.gateway.remote_agent import from_location

        try:
            return [from_location(location)]
        except DeclarationError as error:
            name = location.partition("=")[0]  # without the address, which may contain a password
            raise LoadError(f"{name}: {error}") from error
    path, name = _split_location(location)
    module = _import_file(path)
    try:
        return _agents_by_name(module, path, name) if name else _public_agents(module, path)
    except DeclarationError as error:  # of a framework's object: ours are checked when they are written
        raise LoadError(f"{path}: {error}") from error


def is_remote(location: str) -> bool:
    """Whether a location is `NAME=PROTOCOL+URL`, an agent that runs on another server, or lacks only the protocol."""
    return _REMOTE.match(location) is not None


def load_all(locations: Iterable[str]) -> list[Agent]:
    """Load the agents of several files. A framework's object can also be called by its own name if that is free.

    Raises:
        LoadError: a file does not exist, fails to import, or has no agent.
    """
    agents = [agent for location in locations for agent in load(location)]
    taken = {name for agent in agents for name in (agent.spec.name, *agent.spec.aliases)}
    for agent in agents:
        if isinstance(agent, Wrapper) and agent.own_name and is_agent_name(agent.own_name):
            if agent.own_name not in taken:
                agent.add_alias(agent.own_name)
            taken.add(agent.own_name)
    return agents


@runtime_checkable
class Wrapper(Protocol):
    """An object of another framework as an agent; the base class of all of them is in `dragoman.adapters`."""

    @property
    def own_name(self) -> str | None:
        """The object's own name; None if it has none or a default one."""

    def add_alias(self, alias: str) -> None:
        """Add a name that clients may use too."""

    def parts(self) -> Iterable[object]:
        """The objects that are served as a part of this agent, such as the wrapped one."""

    def describe(self) -> str:
        """What was understood of the object, for the server's start."""


@runtime_checkable
class Nameable(Protocol):
    """An agent that can be named after its variable."""

    def name_after(self, variable: str) -> None:
        """Take the name of the variable that holds the agent, unless it has a name."""


def as_agent(value: object, name: str) -> Agent | None:
    """The agent that serves a value: itself if it is one, a wrapper if it is an object of a framework, or None.

    Args:
        value: any value of a file.
        name: the name of the wrapper.

    Raises:
        DeclarationError: it is a framework's object that cannot be served; the message says why.
    """
    if is_agent(value):
        if isinstance(value, Nameable):
            value.name_after(name)
        return value
    packages = {each.__module__.partition(".")[0] for each in type(value).__mro__}
    for framework, adapter in ADAPTERS.items():
        if framework in sys.modules and framework.partition(".")[0] in packages:
            from dragoman.adapters.frameworks import load_adapter

            wrap: Callable[[object, str], Agent | None] = load_adapter(adapter).as_agent
            return wrap(value, name)
    return None


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
    if path.is_dir():
        raise LoadError(f"{path}: is a folder; expected a Python file such as {path / 'app.py'}")
    if not path.is_file():
        hint = f". `dragoman init {path}` writes a first agent" if path.suffix == ".py" else ""
        raise LoadError(f"{path}: no such file{hint}")
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
    hint = _hint(error, text)
    return f"line {line}: {text}{hint}" if line is not None else f"{text}{hint}"


def _hint(error: BaseException, text: str) -> str:
    if isinstance(error, ModuleNotFoundError):
        return _install_hint(error)
    if isinstance(error, RuntimeError) and "event loop" in text:  # of `run_sync` and `asyncio.run`
        stop = "" if text.endswith(".") else "."
        return f"{stop} The server only loads the file: what runs an agent belongs below `if __name__ == '__main__'`"
    return ""


def _install_hint(error: ModuleNotFoundError) -> str:
    from dragoman.adapters.frameworks import install_command

    command = install_command(error.name or "")
    return f". Install it for {sys.executable}, which runs dragoman" + (f": {command}" if command else "")


def _public_agents(module: ModuleType, path: Path) -> list[Agent]:
    """The agents under public names, in the order of the file, without those that are only a part of another."""
    named: dict[int, tuple[str, object]] = {}
    for name, value in vars(module).items():
        if not name.startswith("_"):
            named.setdefault(id(value), (name, value))
    found: dict[int, Agent] = {}
    refused: dict[int, DeclarationError] = {}
    for key, (name, value) in named.items():
        try:
            agent = as_agent(value, name)
        except DeclarationError as error:
            refused[key] = error
            continue
        if agent is not None:
            found[key] = agent
    parts = {part for agent in found.values() for part in _reachable(agent, found)}
    # Parts get what they need from a wrapper.
    if unwrapped := [refusal for key, refusal in refused.items() if key not in parts]:
        raise unwrapped[-1]  # a graph rather than its builder, which comes before it
    agents = _without_parts(found)
    if not agents:
        raise LoadError(
            f"{path}: no agent found. Define one at the top level, such as "
            f'`assistant = Agent("assistant")`, or an async generator function under `@agent`{_factory_hint(module)}'
        )
    return agents


def _factory_hint(module: ModuleType) -> str:
    """What to do in a file that has a function that makes an agent, as deployments of LangGraph have."""
    made = (
        name
        for name, value in vars(module).items()
        if isfunction(value) and value.__module__ == module.__name__ and FACTORY_NAME.match(name)
    )
    name = next(made, None)
    return (
        ""
        if name is None
        else f". The server does not call {name}: assign what it returns, as in `assistant = {name}(…)`"
    )


def _without_parts(agents: Mapping[int, Agent]) -> list[Agent]:
    """The agents that are not reached from another one.

    Of those that reach each other, the one with the most parts stays: agents that hand back to a triage agent are often
    defined before it. Of several the first stays.

    Args:
        agents: by the identity of the object in the file, in its order.
    """
    reached = {key: _reachable(agent, agents) - {key} for key, agent in agents.items()}
    rank = {key: (-len(list(_parts(agent))), place) for place, (key, agent) in enumerate(agents.items())}
    return [
        agent
        for key, agent in agents.items()
        if not any(key in reached[other] and (other not in reached[key] or rank[other] < rank[key]) for other in agents)
    ]


def _reachable(agent: Agent, agents: Mapping[int, Agent]) -> set[int]:
    """The identities of all objects that an agent consists of or hands work to."""
    found: set[int] = set()
    queue = list(_parts(agent))
    while queue:
        part = queue.pop()
        if id(part) not in found:
            found.add(id(part))
            queue += _parts(agents.get(id(part)))
    return found


def _parts(agent: object) -> Iterable[object]:
    if isinstance(agent, ServableAgent):
        return agent.subagents
    return agent.parts() if isinstance(agent, Wrapper) else ()


def _agents_by_name(module: ModuleType, path: Path, name: str) -> list[Agent]:
    value: object = getattr(module, name, None)
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    agents = [agent for each in items if (agent := as_agent(each, _name_in(module, each) or name)) is not None]
    if agents and len(agents) == len(items):
        return agents
    names = [variable for variable, each in vars(module).items() if as_agent(each, variable) is not None]
    available = f"available agents: {', '.join(names)}" if names else "the file defines no agent"
    if not hasattr(module, name):
        raise LoadError(f"{path}: no agent {name!r}; {available}")
    raise LoadError(f"{path}: expected an agent, but {name!r} is a {type(value).__name__}; {available}")


def _name_in(module: ModuleType, value: object) -> str | None:
    """The variable that holds a value in a file."""
    return next((name for name, each in vars(module).items() if each is value), None)
