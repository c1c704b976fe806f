"""The frameworks with an adapter: which versions are served, and every reason to refuse an agent at start.

It imports no framework. Each adapter is imported by its name, after the version has been checked.
"""

import os
import re
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

import msgspec

from dragoman.agents.parameters import DeclarationError

UNTESTED_VARIABLE = "DRAGOMAN_UNTESTED"
"""The environment variable that serves agents of versions outside the tested range when it is `1`."""


class Refused(DeclarationError):
    """A framework's agent cannot be served. The message is one sentence, which names the way out."""


class Framework(msgspec.Struct, frozen=True, kw_only=True):
    """A framework and the range of versions that its adapter is tested with: `lowest` ≤ version < `below`."""

    title: str
    distribution: str
    """Its name in package registries."""
    extra: str
    modules: tuple[str, ...]
    """What agents' files import. They do not all have the name of a package: `agents` is the OpenAI Agents SDK."""
    lowest: tuple[int, ...]
    below: tuple[int, int]

    @property
    def installed(self) -> str:
        """The installed version."""
        return version(self.distribution)

    def check_version(self) -> None:
        """Check that the installed version is in the range. Raises Refused."""
        found = tuple(int(each) for each in re.findall(r"\d+", self.installed)[:3])
        if not self.lowest <= found < self.below and os.environ.get(UNTESTED_VARIABLE) != "1":
            raise Refused(self._version_fault())

    def missing_name(self, error: ImportError) -> Refused:
        """The refusal of a version that lacks a name which the adapter imports."""
        return Refused(f"{self._version_fault()} ({error.msg})")

    def _version_fault(self) -> str:
        lowest, below = (".".join(map(str, each)).removesuffix(".0") for each in (self.lowest, self.below))
        return (
            f"{self.distribution} {self.installed} is installed; dragoman serves {lowest} up to {below}: "
            f'pip install "dragoman[{self.extra}]", or set {UNTESTED_VARIABLE}=1 to try'
        )


PYDANTIC_AI = Framework(
    title="Pydantic AI",
    distribution="pydantic-ai-slim",
    extra="pydantic-ai",
    modules=("pydantic_ai",),
    lowest=(2, 68),
    below=(3, 0),
)
LANGGRAPH = Framework(
    title="LangGraph",
    distribution="langgraph",
    extra="langgraph",
    modules=("langgraph", "langchain_core"),
    lowest=(1, 2, 20),
    below=(2, 0),
)
"""Before 1.2.20, all interrupts of a node have the same ID: the answer to one was taken for the next."""
OPENAI_AGENTS = Framework(
    title="OpenAI Agents SDK",
    distribution="openai-agents",
    extra="openai-agents",
    modules=("agents",),
    lowest=(0, 24),
    below=(0, 25),
)

FRAMEWORKS = {"pydantic_ai": PYDANTIC_AI, "langgraph": LANGGRAPH, "openai_agents": OPENAI_AGENTS}
"""By the names of their adapters in this package."""


def install_command(module: str) -> str | None:
    """How to install the framework to which a module belongs; None if it belongs to none."""
    root = module.partition(".")[0]
    extras = (each.extra for each in FRAMEWORKS.values() if root in each.modules)
    return next((f'pip install "dragoman[{extra}]"' for extra in extras), None)


def load_adapter(name: str) -> ModuleType:
    """Import an adapter of this package.

    Raises:
        Refused: the framework's version is not in the range, or has not got a name that the adapter needs.
    """
    framework = FRAMEWORKS[name]
    framework.check_version()
    try:
        return import_module(f"dragoman.adapters.{name}")
    except ImportError as error:
        if (error.name or "").startswith("dragoman"):
            raise
        raise framework.missing_name(error) from error


def own_runtime(name: str) -> Refused:
    """The refusal of an agent that another runtime executes, such as a durable or remote one."""
    return Refused(f"{name} brings its own runtime and cannot be served; serve the agent that it wraps")


def no_model(name: str, example: str) -> Refused:
    """The refusal of an agent without a model. `example`: how the framework names one."""
    return Refused(f"{name} has no model: {example}")


def needs_argument(name: str, needs: str, wrapper: type, argument: str) -> Refused:
    """The refusal of an agent that only works with an argument of its wrapper.

    Args:
        name: the agent's name.
        needs: what it does without the argument, such as `needs deps of type Deps` or `takes {topic, depth}`.
        wrapper: the wrapper's class.
        argument: the argument's name.
    """
    call = f'{wrapper.__name__}({name}, name="{name}", {argument}=…)'
    return Refused(f"{name} {needs}: wrap it, {call} from {wrapper.__module__}")
