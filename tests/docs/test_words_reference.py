"""Codes, statuses, verdicts, settings and variables are in docs/reference."""

import re
from pathlib import Path
from typing import Any

import psycopg

from holdfast.settings import Settings, variable_of
from support.documents import DOCS, REFERENCE, ROOT, quoted, rows, sections

SOURCE = ROOT / "src" / "holdfast"


def _code_in(*patterns: str) -> str:
    found = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    assert found
    return "\n".join(path.read_text() for path in found)


def test_every_error_code_is_explained() -> None:
    raised = set(re.findall(r"\bQF[0-9A-Z]{3}\b", _code_in("src/holdfast/sql/**/*.sql")))
    explained = {title.split(":")[0] for title in sections(REFERENCE / "errors.md") if title.startswith("QF")}
    assert explained == raised


def test_no_page_names_an_error_code_that_nothing_raises() -> None:
    raised = set(re.findall(r"\bQF[0-9A-Z]{3}\b", _code_in("src/holdfast/sql/**/*.sql")))
    for page in DOCS.rglob("*.md"):
        assert set(re.findall(r"\bQF[0-9]{3}\b", page.read_text())) <= raised, page


def _words_of_rule(tx: psycopg.Connection[Any], name: str) -> set[str]:
    rule = tx.execute(
        "select pg_catalog.pg_get_constraintdef(oid) from pg_catalog.pg_constraint where conname = %s", [name]
    ).fetchone()
    assert rule
    return set(re.findall(r"'(\w+)'", rule[0]))


def test_every_status_is_described(tx: psycopg.Connection[Any]) -> None:
    text = (SOURCE / "sql/functions/tasks.sql").read_text()
    source = text.partition("create or replace function queues.status_of(")[2]
    source = source.partition("$$;")[0]
    derived = set(re.findall(r"(?:then|else) '(\w+)'", source))
    table = (REFERENCE / "statuses.md").read_text().split("## Legal moves")[0]
    assert {cells[0] for cells in rows(table)} == derived | _words_of_rule(tx, "known_outcome")


def test_every_act_is_described(tx: psycopg.Connection[Any]) -> None:
    words = {cells[0]: cells[1] for cells in rows((DOCS / "glossary.md").read_text())}
    assert _words_of_rule(tx, "known_act") <= set(re.findall(r"\w+", words["act"]))


def test_every_word_of_a_status_or_verdict_is_in_the_glossary(tx: psycopg.Connection[Any]) -> None:
    words = {cells[0] for cells in rows((DOCS / "glossary.md").read_text())}
    statuses = {cells[0] for cells in rows((REFERENCE / "statuses.md").read_text().split("## Legal")[0])}
    assert statuses - words == set()


def test_every_verdict_is_described() -> None:
    text = _code_in("src/holdfast/sql/functions/leases.sql") + _code_in(
        "src/holdfast/sql/functions/finish.sql"
    )
    verdicts = set(re.findall(r"then '(\w+)'|else '(\w+)' end\s+from rows", text))
    spoken = {word for pair in verdicts for word in pair if word} - {  # acts, outcomes and an actor
        "continued",
        "dead_letter",
        "holdfast",
        "snoozed",
        "succeeded",
        "suspended",
    }
    assert {"held", "lost", "accepted", "already_done", "cancelled", "released", "deleted"} <= spoken
    assert spoken - quoted((DOCS / "explanation" / "leases-and-tokens.md").read_text()) == set()


def test_every_setting_and_its_variable_is_described() -> None:
    described = {
        cells[0]: cells[1] for cells in rows(sections(REFERENCE / "settings.md")["Settings of a process"])
    }
    assert described == {name: variable_of(name) for name in Settings.model_fields}


def test_every_environment_variable_in_the_code_is_described() -> None:
    text = _code_in("src/holdfast/**/*.py", "tests/conftest.py", "Makefile")
    named = set(re.findall(r"\bHOLDFAST_[A-Z_]+[A-Z]\b", text))
    assert named - quoted((REFERENCE / "settings.md").read_text()) == set()


def test_every_row_of_the_settings_table_is_described(tx: psycopg.Connection[Any]) -> None:
    described = {
        cells[0]: int(cells[1].replace(",", ""))
        for cells in rows(sections(REFERENCE / "settings.md")["Limits in the database"])
    }
    assert described == dict(tx.execute("select name, value from queues.setting").fetchall())


def test_every_cap_is_described(tx: psycopg.Connection[Any]) -> None:
    described = {
        (channel, scope, period, int(most.replace(",", "")))
        for channel, scope, period, most in rows(sections(REFERENCE / "settings.md")["Caps on messages"])
    }
    real = tx.execute(
        "select channel, scope, case period when '1 day' then '1 day' else '1 hour' end, most"
        " from comms.send_cap"
    )
    assert described == set(real.fetchall())


def test_every_executor_is_described(tx: psycopg.Connection[Any]) -> None:
    executors = {name for (name,) in tx.execute("select executor from queues.executor").fetchall()}
    described = {cells[0] for cells in rows((DOCS / "reference" / "settings.md").read_text())}
    assert executors - described == set()


def test_the_pages_of_the_reference_are_all_in_its_list() -> None:
    listed = set(re.findall(r"\]\((\w+\.md)\)", (REFERENCE / "README.md").read_text()))
    assert listed == {path.name for path in Path(REFERENCE).glob("*.md")} - {"README.md"}
