"""Build and check a release, for `make release`.

The version is that of `pyproject.toml`, and its section of the changelog becomes the release notes. The result is in
`dist/`: a wheel and a source distribution with the web console, a bill of materials, checksums and the notes. With
`--tag`, the commit gets the tag of the version at the end, if everything is right. Nothing is uploaded.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent
DIST = PROJECT_ROOT / "dist"
CONSOLE_PAGE = "dragoman/console/index.html"
BILL_OF = "requirements/run.txt"
"""The list whose packages are in the bill of materials: those of an installation with the embedded model."""


def version() -> str:
    """The version in `pyproject.toml`."""
    return str(tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def notes_of(changelog: str, version: str) -> str:
    """The section of a version in a changelog.

    Raises:
        ValueError: there is no such section, it has no date, or it is empty.
    """
    _, found, section = changelog.partition(f"\n## [{version}]")
    if not found:
        raise ValueError(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")
    title, _, text = section.partition("\n")
    if not re.fullmatch(r" - \d{4}-\d{2}-\d{2}", title):
        raise ValueError(f"CHANGELOG.md: expected `## [{version}] - YYYY-MM-DD`, got `## [{version}]{title}`")
    notes = text.partition("\n## ")[0].strip()
    if not notes:
        raise ValueError(f"CHANGELOG.md: the section [{version}] is empty")
    return notes + "\n"


def run(*command: str) -> str:
    """Run a program that has to succeed, and return its output."""
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def check_checkout(tag: str) -> None:
    """Exit with a message if the checkout cannot be released."""
    if changes := run("git", "status", "--porcelain"):
        sys.exit(f"there are changes that are not committed:\n{changes}")
    if run("git", "tag", "--list", tag):
        sys.exit(f"the tag {tag} exists: raise the version in pyproject.toml")


def build() -> None:
    """Build both distributions and check their metadata and their content."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation")
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(source))
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
    with tarfile.open(source) as archive:
        source_names = set(archive.getnames())
    if CONSOLE_PAGE not in names or not any(name.endswith(f"/src/{CONSOLE_PAGE}") for name in source_names):
        sys.exit(f"{CONSOLE_PAGE} is missing in the wheel or in the source distribution")


def describe(version: str, notes: str) -> None:
    """Write the bill of materials, the notes and the checksums."""
    bill = DIST / f"dragoman-{version}.cdx.json"
    project = ("--pyproject", "pyproject.toml", "--output-reproducible")
    run(sys.executable, "-m", "cyclonedx_py", "requirements", BILL_OF, *project, "--output-file", str(bill))
    (DIST / "NOTES.md").write_text(notes, encoding="utf-8")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def main() -> None:
    """Build, check and describe the release; tag it if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tag", action="store_true", help="tag the commit when everything has been built and checked")
    wants_tag = parser.parse_args().tag
    number = version()
    tag = f"v{number}"
    check_checkout(tag)
    try:
        notes = notes_of((PROJECT_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), number)
    except ValueError as error:
        sys.exit(str(error))
    build()
    describe(number, notes)
    sys.stdout.write("".join(f"dist/{path.name}: {path.stat().st_size:,} bytes\n" for path in sorted(DIST.iterdir())))
    if wants_tag:
        run("git", "tag", "--annotate", tag, "--cleanup=verbatim", "--file", "dist/NOTES.md")
        sys.stdout.write(f"tagged {tag}; publish it with: git push origin {tag}\n")


if __name__ == "__main__":
    main()
