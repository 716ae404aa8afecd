"""What MkDocs is told beyond mkdocs.yml: the navigation, and llms.txt and llms-full.txt with all pages.

Each tab has a page with lists. They give the order of the navigation, and their headings its groups.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TABS = {
    "Start": "README.md",
    "Guides": "howto/README.md",
    "Concepts": "explanation/README.md",
    "Reference": "reference/README.md",
    "Project": "project.md",
}
_LINE = re.compile(
    r"^(?P<level>##+) (?P<heading>.+)$"
    r"|^- \[[^\]]+\]\((?P<path>[\w./-]+\.md)\)(?:: (?P<about>.+(?:\n  .+)*))?",
    re.MULTILINE,
)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Page(NamedTuple):
    path: str
    title: str
    about: str
    groups: tuple[str, ...]


def pages(docs: Path, tab: str) -> Iterator[Page]:
    """Those in the lists of a tab, without the page that lists them."""
    index = docs / TABS[tab]
    groups: tuple[str, ...] = ()
    for match in _LINE.finditer(_text(index)):
        if match["heading"]:
            groups = (*groups[: len(match["level"]) - 2], match["heading"])
        else:
            path = (index.parent / match["path"]).resolve().relative_to(docs.resolve()).as_posix()
            text = _text(docs / path)
            title = text.partition("\n")[0].removeprefix("# ").replace("`", "")
            yield Page(path, title, _plain(match["about"] or _first(text)), groups)


def navigation(docs: Path) -> list[Any]:
    tabs = []
    for tab, index in TABS.items():
        entries: list[Any] = [index]
        for page in pages(docs, tab):
            place = entries
            for group in page.groups:
                if not place or not isinstance(place[-1], dict) or group not in place[-1]:
                    place.append({group: []})
                place = place[-1][group]
            place.append(page.path)
        tabs.append({tab: entries})
    return tabs


ABOUT = """\
A task queue and workflow engine for Python. Its engine is SQL functions in your own PostgreSQL, so that tasks
are enqueued in the transaction of the change that they belong to. It is not a broker, needs no other server,
and is not a cluster scheduler. Install it as holdfast-pg; the import name is holdfast."""


def llms_text(docs: Path, name: str, description: str) -> str:
    lines = [f"# {name}", "", f"> {description}", "", ABOUT, ""]
    for tab in TABS:
        lines += [f"## {tab}", "", *(_line(page) for page in pages(docs, tab)), ""]
    return "\n".join(lines)


def full_text(docs: Path, name: str, description: str) -> str:
    """All pages but the decisions, each after a line with its path."""
    parts = [f"# {name}\n\n> {description}\n\n{ABOUT}\n"]
    for tab in TABS:
        parts += [f"<!-- {page.path} -->\n\n{_text(docs / page.path)}" for page in pages(docs, tab)]
    return "\n".join(parts)


def _line(page: Page) -> str:
    return f"- [{page.title}]({page.path})" + (f": {page.about}" if page.about else "")


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


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The search finds what holds now, so it leaves out the records of decisions."""
    if page.file.src_uri.startswith("adr/"):
        page.meta["search"] = {"exclude": True}
    return markdown


def on_post_build(config: Any) -> None:
    """Beside each page its source, which is what llms.txt leads to."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    for source in docs.rglob("*.md"):
        shutil.copyfile(source, site / source.relative_to(docs))
    text = llms_text(docs, config.site_name, config.site_description)
    (site / "llms.txt").write_text(text, encoding="utf-8")
    full = full_text(docs, config.site_name, config.site_description)
    (site / "llms-full.txt").write_text(full, encoding="utf-8")
