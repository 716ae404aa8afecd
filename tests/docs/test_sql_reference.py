"""docs/reference/sql.md and roles.md say what the catalog says."""

import re
from typing import Any

import psycopg
import pytest

from support.documents import REFERENCE, code, quoted, rows, sections

ROLES = ("client", "process", "worker", "dispatcher", "operator", "reader")

FUNCTIONS = """
  select n.nspname || '.' || p.proname,
    pg_catalog.pg_get_function_arguments(p.oid), pg_catalog.pg_get_function_result(p.oid),
    array(select r.rolname::text from pg_catalog.pg_roles r
          where r.rolname like 'holdfast\\_%' and r.rolname <> 'holdfast_owner' and not r.rolcanlogin
            and pg_catalog.has_function_privilege(r.oid, p.oid, 'execute'))
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname in ('queues', 'internal', 'comms')
"""

VIEWS = """
  select n.nspname || '.' || c.relname,
    array(select r.rolname::text from pg_catalog.pg_roles r
          where r.rolname like 'holdfast\\_%' and r.rolname <> 'holdfast_owner' and not r.rolcanlogin
            and pg_catalog.has_table_privilege(r.oid, c.oid, 'select'))
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname in ('queues', 'internal', 'comms') and c.relkind = 'v'
"""

Connection = psycopg.Connection[Any]

WRITTEN = sections(REFERENCE / "sql.md") | {
    title: text for title, text in sections(REFERENCE / "comms.md").items() if "| column |" not in text
}
INTERNAL = [
    sections(REFERENCE / "sql.md")["Internal functions"],
    sections(REFERENCE / "comms.md")["Internal functions of comms"],
]


@pytest.fixture
def functions(tx: Connection) -> dict[str, tuple[str, str, set[str]]]:
    return {
        name: (arguments, result, set(roles))
        for name, arguments, result, roles in tx.execute(FUNCTIONS).fetchall()
    }


Functions = dict[str, tuple[str, str, set[str]]]


def test_every_granted_function_has_a_section(functions: Functions) -> None:
    granted = {name for name, (_, _, roles) in functions.items() if roles}
    assert granted - WRITTEN.keys() == set()


def test_every_section_is_about_a_granted_function(functions: Functions) -> None:
    titles = {title for title in WRITTEN if re.match(r"(queues|internal|comms)\.", title)}
    assert titles - {name for name, (_, _, roles) in functions.items() if roles} == set()


def test_the_internal_functions_are_listed(functions: Functions) -> None:
    listed = {cells[0] for text in INTERNAL for cells in rows(text)}
    assert listed == {name for name, (_, _, roles) in functions.items() if not roles}


def test_signatures_are_those_of_the_catalog(functions: Functions) -> None:
    written = {title: _plain(code(text, "sql")[0]) for title, text in WRITTEN.items() if title in functions}
    real = {
        name: _plain(f"{name}({arguments}) returns {result}")
        for name, (arguments, result, _) in functions.items()
        if name in written
    }
    assert written == real


def test_each_section_names_who_may_call(functions: Functions) -> None:
    written = {
        title: quoted(next(line for line in text.splitlines() if line.startswith("For: ")))
        for title, text in WRITTEN.items()
        if title in functions
    }
    assert written == {name: functions[name][2] for name in written}


def test_the_matrix_of_roles_is_that_of_the_catalog(functions: Functions, tx: Connection) -> None:
    real = {name: roles for name, (_, _, roles) in functions.items() if roles}
    real |= {name: set(roles) for name, roles in tx.execute(VIEWS).fetchall()}
    matrix = {
        cells[0]: {f"holdfast_{role}" for role, cell in zip(ROLES, cells[1:], strict=True) if cell}
        for cells in rows((REFERENCE / "roles.md").read_text())
    }
    assert matrix == real


def _plain(signature: str) -> str:
    """One way to write what Postgres and people write in several."""
    plain = " ".join(signature.lower().split()).replace("timestamp with time zone", "timestamptz")
    plain = re.sub(r"::(timestamptz|\w+(\[\])?)", "", plain)
    return re.sub(r"\s*([(),])\s*", r"\1", plain)
