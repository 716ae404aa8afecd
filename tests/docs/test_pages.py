"""What holds for every page, and for every file of the repository."""

import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import messages
from holdfast._install.schema.sources import Sources, SqlPiece
from support.documents import DOCS, ROOT, code, name_of, pages, prose

NAMES = """
  select n.nspname || '.' || c.relname from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname in ('queues', 'internal', 'comms')
  union
  select n.nspname || '.' || p.proname from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace where n.nspname in ('queues', 'internal', 'comms')
"""

# Each pattern is written so that it does not match itself.
FOREIGN_WORDS = [
    r"[i]ssues?\s+(?:#|no\.?\s*|number\s+)?\d",
    r"[t]rackers?\b",
    r"(?:earlier|previous|coding|chat)\s+[s]essions?\b",
    r"(?<!\")[a]ssistants?\b",  # quoted, it is a role in the API of a model
    r"\b(?:ai|language)[- ](?:[g]enerated|[m]odels?)\b",
    r"\b[l]lms?\b(?!\.txt|-full\.txt|_text)|\b[c]hatgpt\b|\b[c]opilot\b",
    r"\b(?:system|user|my|your|this|the)\s+[p]rompts?\b|\b[p]rompt(?:ed)? (?:to|by) (?:an?|the) [m]odel",
    r"\.\./[s]hared|/work/[a-z]",
    r"[p]ypi\.org|[p]ythonhosted|[t]est\.pypi|[n]pmjs|[r]ubygems\.org|[c]rates\.io",
]

# Names and phrases with a plainer form, each with what to write instead.

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


def test_the_tree_in_contributing_has_every_module() -> None:
    tree = (ROOT / "CONTRIBUTING.md").read_text().partition("## The tree")[2].partition("\n## ")[0]
    modules = {
        path.name for path in (ROOT / "src/holdfast").iterdir() if path.suffix == ".py" or path.is_dir()
    }
    assert {name for name in modules if not name.startswith("__") and name not in tree} == set()


def test_the_figures_of_the_readme_are_those_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    tool: Any = import_module("figures")
    written = tool.written((ROOT / "README.md").read_text())
    assert written == tool.figures(DOCS), "run: python tools/figures.py"


def _pieces(kind: str) -> list[SqlPiece]:
    """Those of core, of the units, and of what takes their place."""
    return [piece for part in Sources().parts for piece in part.of(kind)]


def test_every_function_that_takes_locks_is_on_the_page_about_locks() -> None:
    page = (DOCS / "explanation" / "locks.md").read_text()
    stated = r"((?:^--[^\n]*\n)+)create or replace function (\w+\.\w+)"
    for piece in _pieces("functions"):
        for head, name in re.findall(stated, piece.sql, re.MULTILINE):
            if "Locks:" in head and re.search(r"\bFor holdfast_", head):
                assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    ("kind", "least", "most", "parts"),
    [
        ("functions", 5, 14, ["Invariant", "Lock order", "At the same time"]),
        ("tables", 1, 4, []),
        ("views", 1, 4, []),
    ],
)
def test_every_sql_file_opens_with_what_it_is_for(kind: str, least: int, most: int, parts: list[str]) -> None:
    for piece in _pieces(kind):
        opening = piece.sql.partition("\n\n")[0]
        lines = opening.splitlines()
        assert all(line.startswith("-- ") for line in lines), piece.name
        assert least <= len(lines) <= most, piece.name
        named = re.findall(r"^-- (Invariant|Lock order|At the same time): ", opening, re.MULTILINE)
        assert named == parts, piece.name


def test_every_decision_is_in_the_list_and_has_its_four_parts() -> None:
    decisions = sorted(DOCS.glob("adr/[0-9]*.md"))
    listed = (DOCS / "adr" / "README.md").read_text()
    numbers = [page.name[:4] for page in decisions]
    assert len(numbers) == len(set(numbers))
    for page in decisions:
        assert f"| [{page.name[:4]}]({page.name}) |" in listed
        parts = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
        assert parts == ["Status", "Context", "Decision", "Consequences"], page.name


def test_the_site_leads_to_every_page_and_so_does_llms_txt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    site: Any = import_module("pages")
    listed = re.findall(r"^- \[.+?\]\((.+?)\)", site.llms_text(DOCS, "Holdfast", "…"), re.MULTILINE)
    everything = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted(page for page in everything if not page.endswith("README.md"))
    assert set(re.findall(r"'([\w/-]+\.md)'", str(site.navigation(DOCS)))) == everything


def test_the_whole_documentation_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    site: Any = import_module("pages")
    whole = site.full_text(DOCS, "Holdfast", "…")
    of_users = [page for page in DOCS.rglob("*.md") if page.name != "README.md" and page.parent.name != "adr"]
    assert all(page.read_text() in whole for page in of_users)
    assert "is not a broker" in site.llms_text(DOCS, "Holdfast", "…")


def test_code_in_pages_is_python_that_compiles() -> None:
    for page in pages():
        for block in code(page.read_text(), "python"):
            compile(block, name_of(page), "exec")


def _files() -> list[Path]:
    listed = subprocess.run(
        ["env", "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    names = listed.stdout.decode().split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_file_speaks_of_how_the_work_is_organised() -> None:
    foreign = re.compile("|".join(FOREIGN_WORDS), re.IGNORECASE)
    found = []
    for path in _files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        found += [
            f"{path.relative_to(ROOT)}:{n}: {line.strip()}"
            for n, line in enumerate(lines, 1)
            if foreign.search(line)
        ]
    assert found == []


def test_the_glossary_is_one_sorted_table() -> None:
    lines = (ROOT / "docs/glossary.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = lines[first:]
    assert table[:2] == ["| word | meaning |", "|---|---|"]
    words = [line.split("|")[1].strip().lower().replace("_", " ") for line in table[2:]]
    assert words == sorted(set(words))
