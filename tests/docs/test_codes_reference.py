"""docs/reference/codes.md lists every code, and every code that SQL returns has words."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast._words.explanation import EXPLANATION
from holdfast._words.health import HEALTH
from support.documents import REFERENCE, ROOT

SQL = ROOT / "src/holdfast/sql"
_RETURNED = re.compile(r"(?:'\w+'|\bcase\b(?:(?!\bcase\b).)*?\bend) as code\b", re.DOTALL)
_CHOICE = re.compile(r"\(values ([^;]*?)\) \w+\(code\)")
_BUILT = re.compile(r",\s*(?:jsonb_build_object\(|pg_catalog\.jsonb_build_object\(|'\{\}'::jsonb)")
_DERIVED = {"first_cause": "causes", "all_causes": "causes"}


def _codes(piece: str) -> set[str]:
    """The codes among the texts of an expression: of a case, those that it chooses."""
    return set(re.findall(r"(?:then|else)\s+'(\w+)'" if "case" in piece else r"'(\w+)'", piece))


def _source(prefix: str, *files: str) -> str:
    """These files, and the functions of units whose names begin so."""
    function = re.compile(
        rf"^create or replace function queues\.{prefix}_.*?^\$\$;$", re.DOTALL | re.MULTILINE
    )
    units = (found for path in (SQL / "units").rglob("*.sql") for found in function.findall(path.read_text()))
    return "\n".join([*((SQL / file).read_text() for file in files), *units])


def _returned(prefix: str, *files: str) -> set[str]:
    """What has the alias code there."""
    source = _source(prefix, *files)
    pieces = [found[0] for found in _RETURNED.finditer(source)]
    pieces += [found[1] for found in _CHOICE.finditer(source)]
    return {code for piece in pieces for code in _codes(piece)}


def _of_logins() -> set[str]:
    """What a command or the HTTP server finds out about its own login."""
    sources = (path.read_text() for path in (ROOT / "src/holdfast").rglob("*.py"))
    return {code for text in sources for code in re.findall(r'grant_lines\(missing, "\w+", "(\w+)"\)', text)}


def test_each_code_of_health_has_words_and_each_of_the_words_is_of_a_code() -> None:
    found = _returned("health", "functions/health.sql", "front/base.sql")
    assert len(found) > 50
    assert len(_of_logins()) == 2
    assert found | _of_logins() == set(HEALTH)


def test_each_code_of_explain_has_words_and_each_of_the_words_is_of_a_code() -> None:
    found = _returned("explain", "functions/explain.sql")
    assert len(found) > 30
    assert found == set(EXPLANATION)


def _facts(after: str) -> set[str]:
    """The names in the object that an expression builds first: at the level of its own brackets."""
    names, level, start = set(), 0, after.index("jsonb_build_object(") + len("jsonb_build_object")
    for found in re.finditer(r"[()]|'(\w+)',", after[start:]):
        level += {"(": 1, ")": -1}.get(found[0], 0)
        if level == 0:
            break
        if found[1] and level == 1:
            names.add(found[1])
    return names


def test_words_need_no_fact_that_is_not_returned_with_their_code() -> None:
    checked = set()
    for source, table, always in (
        (_source("health", "functions/health.sql", "front/base.sql"), HEALTH, {"subject", "value"}),
        (_source("explain", "functions/explain.sql"), EXPLANATION, set[str]()),
    ):
        for found in _RETURNED.finditer(source):
            after = source[found.end() :]
            if not (built := _BUILT.match(after)):
                continue  # built from several places
            facts = set() if built[0].endswith("jsonb") else _facts(after)
            for code in _codes(found[0]):
                needed = {_DERIVED.get(name, name) for name in table[code].used}
                assert needed <= facts | always, code
                checked.add(code)
    assert len(checked) > 70


def test_the_page_has_the_words_of_every_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(ROOT / "tools")))
    tool: Any = import_module("codes")
    page = (REFERENCE / "codes.md").read_text()
    assert page == tool.filled(page), "run: python tools/codes.py"
