"""What holds for every page."""

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import messages
from support.documents import DOCS, ROOT, code, name_of, pages, prose, rows, sections

NAMES = """
  select n.nspname || '.' || c.relname from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname in ('queues', 'internal', 'comms')
  union
  select n.nspname || '.' || p.proname from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace where n.nspname in ('queues', 'internal', 'comms')
"""

LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", prose(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(prose(page.read_text())):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), match["target"]
        if anchor:
            assert anchor in _anchors(found), match["target"]


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = LINK.findall(prose(page.read_text()))
        found = {
            (page.parent / target.partition("#")[0]).resolve() for target in targets if "://" not in target
        }
        waiting += [path for path in found if path.suffix == ".md" and path not in reached]
    assert set(DOCS.rglob("*.md")) - reached == set()


def test_pages_name_only_tables_views_and_functions_that_exist(tx: psycopg.Connection[Any]) -> None:
    known = {name for (name,) in tx.execute(NAMES).fetchall()} | {"queues.sql", "internal.sql", "comms.md"}
    known |= {f"comms.{name}" for name in ("provider", *messages.__all__)}  # of Python
    for page in pages():
        named = set(re.findall(r"\b(?:queues|internal|comms)\.[a-z_]+", page.read_text()))
        assert named - known == set(), name_of(page)


def test_pages_name_only_files_that_exist() -> None:
    for page in pages():
        text = prose(page.read_text())
        for name in re.findall(r"`((?:src|tests|docs|benchmarks|examples|tools)/[\w./-]+)`", text):
            assert (ROOT / name).exists(), f"{name_of(page)} names {name}"
        for name in re.findall(r"`((?:functions|views|schema)/[\w./-]+\.sql)`", text):
            assert (ROOT / "src/holdfast/sql" / name).exists(), f"{name_of(page)} names {name}"


def test_files_of_the_engine_name_only_pages_that_exist() -> None:
    named = {
        page
        for path in (ROOT / "src/holdfast/sql").rglob("*.sql")
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())
    }
    assert {f"docs/design/{page.name}" for page in (DOCS / "design").iterdir()} <= named
    assert {page for page in named if not (ROOT / page).exists()} == set()


def test_the_tree_in_contributing_has_every_module() -> None:
    tree = (ROOT / "CONTRIBUTING.md").read_text().partition("## The tree")[2].partition("\n## ")[0]
    modules = {
        path.name for path in (ROOT / "src/holdfast").iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert {name for name in modules if not name.startswith("__") and name not in tree} == set()


def test_the_layers_in_contributing_are_those_that_the_linter_checks() -> None:
    """Every module is in a layer: the contract is exhaustive."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers, outside, *_ = project["tool"]["importlinter"]["contracts"]
    checked = [layer.split(" | ") for layer in layers["layers"]]
    table = sections(ROOT / "CONTRIBUTING.md")["Layers"]
    named = [row[0].split() for row in rows(table)]

    assert [row for row in named if row != ["—"]] == checked
    line = named.index(["—"])
    for contracted, standing in (("forbidden_modules", named[:line]), ("source_modules", named[line + 1 :])):
        assert set(outside[contracted]) == {f"holdfast.{name}" for row in standing for name in row}


def test_the_figures_of_the_readme_are_those_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool: Any = import_module("figures")
    written = tool.written((ROOT / "README.md").read_text())
    assert written == tool.figures(DOCS), "run: python tools/figures.py"


def test_every_decision_is_in_the_list_with_its_status_and_area() -> None:
    table = rows((DOCS / "adr" / "README.md").read_text())
    listed = {cells[0].partition("]")[0][1:]: cells for cells in table}
    decisions = sorted(DOCS.glob("adr/[0-9]*.md"))
    assert listed.keys() == {page.name[:4] for page in decisions}
    for page in decisions:
        _, title, status, area = listed[page.name[:4]]
        assert page.read_text().startswith(f"# {page.name[:4]}: {title}\n")
        assert status in sections(page)["Status"], page.name
        assert area, page.name


def test_the_site_leads_to_every_page_and_so_does_llms_txt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    site: Any = import_module("pages")
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", site.llms_text(DOCS, "Holdfast", "…"), re.MULTILINE)
    everything = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    led_to = {page for page in everything if not page.startswith("adr/0")}
    indexes = set(site.TABS.values())
    assert sorted(listed) == sorted(led_to - indexes)
    assert set(re.findall(r"'([\w/-]+\.md)'", str(site.navigation(DOCS)))) == led_to


def test_the_whole_documentation_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    site: Any = import_module("pages")
    whole = site.full_text(DOCS, "Holdfast", "…")
    left_out = {*(DOCS / index for index in site.TABS.values()), *DOCS.glob("adr/0*")}
    assert all(page.read_text() in whole for page in DOCS.rglob("*.md") if page not in left_out)
    assert "is not a broker" in site.llms_text(DOCS, "Holdfast", "…")


def test_code_in_pages_is_python_that_compiles() -> None:
    for page in pages():
        for block in code(page.read_text(), "python"):
            compile(block, name_of(page), "exec")


def test_the_glossary_is_one_sorted_table() -> None:
    lines = (ROOT / "docs/glossary.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = lines[first:]
    assert table[:2] == ["| word | meaning |", "|---|---|"]
    words = [line.split("|")[1].strip().lower().replace("_", " ") for line in table[2:]]
    assert words == sorted(set(words))
