"""What MkDocs is told beyond mkdocs.yml: the navigation, and llms.txt and llms-full.txt with all pages.

Each directory of docs/ has a README.md whose list puts its pages in order; a page in no list comes last.
"""

import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

SECTIONS = {
    "tutorial": "Tutorials",
    "howto": "How-to guides",
    "explanation": "Explanations",
    "reference": "Reference",
    "adr": "Decisions",
}
_LISTED = re.compile(r"\[[^\]]+\]\((?P<name>[\w-]+\.md)\)(?:: (?P<about>[^\n]+(?:\n  [^\n]+)*))?")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Page(NamedTuple):
    path: str
    title: str
    about: str


def pages(docs: Path, section: str) -> list[Page]:
    """Those of one directory, as its README.md lists them; without that page itself."""
    directory = docs / section
    listed = {
        match["name"]: match["about"] or "" for match in _LISTED.finditer(_text(directory / "README.md"))
    }
    rest = sorted(path.name for path in directory.glob("*.md") if path.name not in {*listed, "README.md"})
    return [_page(docs, f"{section}/{name}", listed.get(name, "")) for name in [*listed, *rest]]


def loose_pages(docs: Path) -> list[Page]:
    """Those that are in no directory."""
    return [_page(docs, path.name, "") for path in sorted(docs.glob("*.md")) if path.name != "README.md"]


def navigation(docs: Path) -> list[Any]:
    rest = [page.path for page in loose_pages(docs)]
    sections = [
        {title: [f"{section}/README.md", *(page.path for page in pages(docs, section))]}
        for section, title in SECTIONS.items()
    ]
    return ["README.md", *sections, *rest]


ABOUT = """\
A task queue and workflow engine for Python. Its engine is SQL functions in your own PostgreSQL, so that tasks
are enqueued in the transaction of the change that they belong to. It is not a broker, needs no other server,
and is not a cluster scheduler. Install it as holdfast-pg; the import name is holdfast."""


def llms_text(docs: Path, name: str, description: str) -> str:
    lines = [f"# {name}", "", f"> {description}", "", ABOUT, ""]
    for section, title in SECTIONS.items():
        lines += [f"## {title}", "", *map(_line, pages(docs, section)), ""]
    lines += ["## More", "", *map(_line, loose_pages(docs)), ""]
    return "\n".join(lines)


def full_text(docs: Path, name: str, description: str) -> str:
    """All pages but the decisions, each after a line with its path."""
    found = [page for section in SECTIONS if section != "adr" for page in pages(docs, section)]
    parts = [f"# {name}\n\n> {description}\n\n{ABOUT}\n"]
    parts += [f"<!-- {page.path} -->\n\n{_text(docs / page.path)}" for page in [*found, *loose_pages(docs)]]
    return "\n".join(parts)


def _line(page: Page) -> str:
    return f"- [{page.title}]({page.path})" + (f": {page.about}" if page.about else "")


def _page(docs: Path, path: str, about: str) -> Page:
    text = _text(docs / path)
    return Page(
        path, text.partition("\n")[0].removeprefix("# ").replace("`", ""), _plain(about or _first(text))
    )


def _first(text: str) -> str:
    """The first sentence below the title, if the page does not begin with a heading."""
    paragraphs = [part for part in text.partition("\n## ")[0].split("\n\n")[1:] if part[:1].isalpha()]
    return re.split(r"(?<=[.:])\s", paragraphs[0], maxsplit=1)[0] if paragraphs else ""


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", " ".join(text.split()))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def on_config(config: Any) -> Any:
    config.nav = navigation(Path(config.docs_dir))
    return config


def on_post_build(config: Any) -> None:
    """Beside each page its source, which is what llms.txt leads to."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    for source in docs.rglob("*.md"):
        shutil.copyfile(source, site / source.relative_to(docs))
    text = llms_text(docs, config.site_name, config.site_description)
    (site / "llms.txt").write_text(text, encoding="utf-8")
    full = full_text(docs, config.site_name, config.site_description)
    (site / "llms-full.txt").write_text(full, encoding="utf-8")
