"""Build the documentation site from `docs/`, for `make docs`.

The pages are plain Markdown that can be read where they are. They are staged in `build/docs` first: files outside of
`docs/` to which they link become pages of the site, and three pages get what the program says about itself: the help of
every command, the docstrings of the public API, and the OpenAPI document. Beside the HTML pages, the site contains the
Markdown files and `llms.txt`, which lists them.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PROJECT_ROOT = Path(__file__).resolve().parent.parent
CONFIG = PROJECT_ROOT / "zensical.toml"
DOCS = PROJECT_ROOT / "docs"
FENCE_OR_LINK = re.compile(
    r"^ *(?P<fence>`{3,}).*?^ *(?P=fence)$|(?<=\]\()(?!#|\w+:)(?P<link>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))",
    re.MULTILINE | re.DOTALL,
)
"""A block of code, or the target of a relative link with its anchor."""
LANGUAGES = {".py": "python", ".js": "js", ".jsx": "jsx", ".json": "json", ".html": "html"}
PUBLIC_MODULES = ("dragoman", "dragoman.client", "dragoman.testing")
ROOT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages of the site that are not in `docs/`."""


class NavigationEntry(NamedTuple):
    """A page in the navigation."""

    section: str
    title: str
    page: str


@cache
def config() -> dict[str, Any]:
    """The site's configuration, `zensical.toml`."""
    project: dict[str, Any] = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]
    return project


def navigation() -> list[NavigationEntry]:
    """All pages in the order of the navigation, by their paths below `docs/`."""
    return list(_entries("", "", config()["nav"]))


def _entries(section: str, title: str, entry: object) -> Iterator[NavigationEntry]:
    match entry:
        case str():
            yield NavigationEntry(section, title or title_of(entry), entry)
        case list():
            for each in entry:
                yield from _entries(section or title, "", each)
        case dict():
            for name, value in entry.items():
                yield from _entries(section, name, value)


def source_of(page: str) -> Path:
    """The file of a page in the navigation."""
    return PROJECT_ROOT / page if page in ROOT_PAGES else DOCS / page


def title_of(page: str) -> str:
    """The heading of a page."""
    text = source_of(page).read_text(encoding="utf-8")
    return text.split("\n", 1)[0].removeprefix("# ")


def summary_of(page: str) -> str:
    """The first sentence of a page, without links; empty if it does not begin with one."""
    paragraph = re.search(r"\A# .+\n\n(?!```|[|!<#])((?:.+\n)+)", source_of(page).read_text(encoding="utf-8"))
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraph[1].split())) if paragraph else ""
    return re.split(r"(?<=[\w`)][.]) ", text.replace("**", ""), maxsplit=1)[0]


# --- staging ----------------------------------------------------------------------------------------------------------


class Staging:
    """Copies pages to a folder, and the files outside of `docs/` to which they link."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._waiting = [*sorted(DOCS.rglob("*.md")), *(PROJECT_ROOT / name for name in ROOT_PAGES)]
        self._done: set[Path] = set()

    def run(self) -> None:
        """Write the folder anew."""
        shutil.rmtree(self._target, ignore_errors=True)
        shutil.copytree(DOCS, self._target, ignore=shutil.ignore_patterns("*.md"))
        while self._waiting:
            source = self._waiting.pop()
            if source not in self._done:
                self._done.add(source)
                self._stage(source)

    def _stage(self, source: Path) -> None:
        target = self._target / self._place(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8") if source.suffix == ".md" else listing_of(source)
        text = FENCE_OR_LINK.sub(lambda found: self._link(source, found), text)
        target.write_text(text, encoding="utf-8")

    def _link(self, source: Path, found: re.Match[str]) -> str:
        if found["fence"]:
            return found[0]
        linked = (source.parent / found["link"]).resolve()
        if linked.is_dir() and (linked / "README.md").is_file() and linked.is_relative_to(DOCS):
            linked /= "README.md"
        if linked.suffix != ".md" and linked.is_relative_to(DOCS):
            return found[0]
        self._waiting.append(linked)
        folder = self._place(source).parent
        return Path(os.path.relpath(self._place(linked), folder)).as_posix() + (found["anchor"] or "")

    def _place(self, source: Path) -> Path:
        """Where a file is on the site."""
        path = source.relative_to(DOCS if source.is_relative_to(DOCS) else PROJECT_ROOT)
        return path if source.suffix == ".md" else path.with_name(f"{path.name}.md")


def listing_of(path: Path) -> str:
    """A page with the text of a file, or of all files in a folder."""
    files = sorted(each for each in path.rglob("*") if is_source(each)) if path.is_dir() else [path]
    blocks = (
        f"**`{each.relative_to(PROJECT_ROOT)}`**\n\n"
        f"````{LANGUAGES.get(each.suffix, '')}\n{each.read_text(encoding='utf-8').strip()}\n````\n"
        for each in files
    )
    return f"# {path.relative_to(PROJECT_ROOT)}\n\n" + "\n".join(blocks)


def is_source(path: Path) -> bool:
    """Whether a file of an example is shown."""
    generated = {"node_modules", "dist", "__pycache__", "package-lock.json"}
    return path.is_file() and not generated.intersection(path.parts)


# --- generated content ------------------------------------------------------------------------------------------------


def add_generated_content(staged: Path) -> None:
    """Add what the program says about itself to three staged pages."""
    contents = {
        "cli.md": help_of_commands(),
        "python-api.md": "".join(f"\n## Reference: {name}\n\n{python_reference(name)}" for name in PUBLIC_MODULES),
        "rest-api.md": openapi_operations(),
    }
    for page, content in contents.items():
        with (staged / page).open("a", encoding="utf-8") as file:
            file.write(content)


def python_reference(module: str) -> str:
    """What mkdocstrings replaces by the docstrings of a module's public names."""
    return "".join(f"::: {module}.{name}\n\n" for name in importlib.import_module(module).__all__)


def help_of_commands() -> str:
    """The help of every command."""
    from click import Context, Group

    from dragoman.cli.main import commands

    def sections(group: Group, name: str) -> Iterator[str]:
        for each in sorted(group.commands):
            command = group.commands[each]
            context = Context(command, info_name=f"{name} {each}", max_content_width=100, terminal_width=100)
            yield f"\n## {name} {each}\n\n```text\n{command.get_help(context)}\n```\n"
            if isinstance(command, Group):
                yield from sections(command, f"{name} {each}")

    return "".join(sections(commands, "dragoman"))


def openapi_operations() -> str:
    """A table of all operations, by protocol."""
    import httpx2

    from dragoman.testing import serve

    with serve() as server:
        document = httpx2.get(f"{server.url}/openapi.json").json()
    rows: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            row = f"| {method.upper()} | `{path}` | {operation['summary'].replace('|', '&#124;')} |\n"
            rows.setdefault(operation.get("tags", ["Server"])[0], []).append(row)
    head = "| method | path | purpose |\n|---|---|---|\n"
    return "".join(f"\n## {tag}\n\n{head}{''.join(lines)}" for tag, lines in rows.items())


def llms_txt() -> str:
    """The list of all pages for language models, in the format of llmstxt.org."""
    lines = [f"# {config()['site_name']}", "", f"> {config()['site_description']}"]
    section = ""
    for entry in navigation():
        if entry.section != section:
            section = entry.section
            lines += ["", f"## {section}", ""]
        summary = summary_of(entry.page)
        lines.append(f"- [{entry.title}]({entry.page})" + (f": {summary}" if summary else ""))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Stage the pages, build the site, and put the Markdown files into it."""
    staged, site = PROJECT_ROOT / config()["docs_dir"], PROJECT_ROOT / config()["site_dir"]
    Staging(staged).run()
    add_generated_content(staged)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run(
        [zensical, "build", "--clean", "--strict"],
        cwd=PROJECT_ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if built.returncode:
        sys.exit(f"the site has mistakes:\n{built.stdout}")
    for page in staged.rglob("*.md"):
        shutil.copyfile(page, site / page.relative_to(staged))
    (site / "llms.txt").write_text(llms_txt(), encoding="utf-8")
    sys.stdout.write(f"{site.relative_to(PROJECT_ROOT)}/index.html\n")


if __name__ == "__main__":
    main()
