"""docs/reference/sql.md and roles.md say what the catalog says."""

import re
from typing import Any

import psycopg
import pytest

from support.documents import REFERENCE, code, quoted, rows, sections

ROLES = ("client", "process", "worker", "dispatcher", "operator", "reader", "caller")

FUNCTIONS = """
  select n.nspname || '.' || p.proname,
    pg_catalog.pg_get_function_arguments(p.oid), pg_catalog.pg_get_function_result(p.oid),
    array(select r.rolname::text from pg_catalog.pg_roles r
          where r.rolname like 'holdfast\\_%' and r.rolname <> 'holdfast_owner' and not r.rolcanlogin
            and pg_catalog.has_function_privilege(r.oid, p.oid, 'execute'))
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname in ('queues', 'internal', 'comms') and p.proowner <> 'holdfast_caller'::pg_catalog.regrole
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
# Granted to no role: administrators, that is, members of holdfast_owner, call them.
FOR_ADMINISTRATORS = {"queues.add_to_namespace", "queues.remove_from_namespace"}

Functions = dict[str, tuple[str, str, set[str]]]


@pytest.fixture
def functions(tx: Connection) -> Functions:
    """The functions that are part of the contract, with their arguments, result and roles."""
    found = {
        name: (arguments, result, set(roles) or ({"holdfast_owner"} if name in FOR_ADMINISTRATORS else set()))
        for name, arguments, result, roles in tx.execute(FUNCTIONS).fetchall()
    }
    return {name: function for name, function in found.items() if function[2]}


def test_the_sections_are_about_the_functions_that_may_be_called_and_no_others(functions: Functions) -> None:
    assert {title for title in WRITTEN if re.match(r"(queues|internal|comms)\.", title)} == functions.keys()


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
    real = {name: roles for name, (_, _, roles) in functions.items() if name not in FOR_ADMINISTRATORS}
    real |= {name: set(roles) for name, roles in tx.execute(VIEWS).fetchall() if roles}
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
