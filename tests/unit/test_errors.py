import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import errors
from holdfast._engine import Engine, health, queues
from holdfast.errors import BY_SQLSTATE, HoldfastError, translate
from support.database import Database

SQL = Path(holdfast.__file__).parent / "sql"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
OWN_CODES = sorted(code for code in BY_SQLSTATE if code.startswith("QF"))


def tree(kind: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from tree(child)


def raised_by(tx: psycopg.Connection[Any], statement: str) -> HoldfastError:
    with pytest.raises(psycopg.Error) as caught:
        tx.execute(statement.encode())
    return translate(caught.value)


def test_every_code_that_the_sql_raises_is_mapped_and_every_mapped_code_is_raised() -> None:
    written = "\n".join(path.read_text() for path in SQL.rglob("*.sql"))
    assert sorted(set(re.findall(r"'(QF\d{3})'", written))) == OWN_CODES


@pytest.mark.parametrize("code", OWN_CODES)
def test_every_code_is_documented_beside_its_class(code: str) -> None:
    rows = [line for line in REFERENCE.read_text().splitlines() if code in line]
    assert any(BY_SQLSTATE[code].__name__ in row for row in rows)


def test_the_tree_in_the_docstring_is_the_tree_of_classes_with_their_exit_codes() -> None:
    drawn = re.findall(r"^[│├└─ ]*(\w+) +(\d+)(?: |$)", errors.__doc__ or "", re.MULTILINE)
    assert [(name, int(code)) for name, code in drawn] == [
        (kind.__name__, kind.exit_code) for kind in in_drawn_order(drawn)
    ]
    assert {name for name, _ in drawn} == {kind.__name__ for kind in tree()}


def in_drawn_order(drawn: list[tuple[str, str]]) -> list[type[HoldfastError]]:
    kinds = {kind.__name__: kind for kind in tree()}
    return [kinds[name] for name, _ in drawn]


@pytest.mark.parametrize("code", OWN_CODES)
def test_a_code_of_the_engine_becomes_its_class_with_message_hint_and_state(
    tx: psycopg.Connection[Any], code: str
) -> None:
    error = raised_by(
        tx, f"do $$ begin raise exception using errcode = '{code}', message = 'm', hint = 'H.'; end $$"
    )
    assert type(error) is BY_SQLSTATE[code]
    assert (str(error), error.message, error.hint, error.sqlstate) == ("m. H.", "m", "H.", code)


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        (r"""select '"\u0000"'::jsonb #>> '{}'""", errors.UnsupportedValue),
        ("select '{'::jsonb", errors.InvalidArgument),
        ("select 'x'::uuid", errors.InvalidArgument),
        ("select repeat('[', 100000)::jsonb", errors.TooLarge),
        ("do $$ begin raise exception using errcode = '54000'; end $$", errors.UnexpectedDatabaseError),
        ("select queues.no_such_function()", errors.NotInstalled),
        ("select from queues.no_such_view", errors.NotInstalled),
        ("select no_such_schema.f()", errors.NotInstalled),
        ("set local role holdfast_reader; select queues.pause('x')", errors.NotAllowed),
        ("set local transaction read only; select queues.pause('x')", errors.DatabaseUnavailable),
        ("do $$ begin raise exception using errcode = '40P01'; end $$", errors.TransactionConflict),
        ("select row(1)::queues.task", errors.TransactionConflict),  # as in a function from before an upgrade
        ("do $$ begin raise exception using errcode = '57P01'; end $$", errors.DatabaseUnavailable),
        ("select 1/0", errors.InvalidArgument),
        ("select 1 1", errors.UnexpectedDatabaseError),
    ],
)
def test_what_postgres_itself_reports_becomes(
    tx: psycopg.Connection[Any], statement: str, kind: type[HoldfastError]
) -> None:
    assert type(raised_by(tx, statement)) is kind


def test_a_missing_schema_says_what_to_run(tx: psycopg.Connection[Any]) -> None:
    assert str(raised_by(tx, "select no_such_schema.f()")).endswith("Run holdfast migrate.")


def test_a_name_that_is_missing_inside_a_function_is_not_a_missing_installation(
    tx: psycopg.Connection[Any],
) -> None:
    error = raised_by(tx, "do $$ begin perform no_such_function(); end $$")
    assert type(error) is errors.UnexpectedDatabaseError


def test_a_right_that_a_function_lacks_is_named_with_the_function(tx: psycopg.Connection[Any]) -> None:
    tx.execute("create role lacking; create schema lacking; grant usage on schema lacking to public")
    tx.execute("create table lacking.orders (id int)")
    tx.execute(
        """create function lacking.take_order() returns void language plpgsql security definer
           set search_path = pg_catalog, pg_temp as $$ begin insert into lacking.orders values (1); end $$"""
    )
    tx.execute("alter function lacking.take_order owner to lacking")
    error = raised_by(tx, "select lacking.take_order()")
    assert type(error) is errors.NotAllowed
    assert error.message == "permission denied for table orders, inside lacking.take_order"
    assert error.hint == (
        "Grant INSERT on table orders to the owner of lacking.take_order,"
        " or to its caller if it is not security definer."
    )


def test_a_function_of_the_engine_that_is_refused_needs_a_role(tx: psycopg.Connection[Any]) -> None:
    error = raised_by(tx, "set local role holdfast_reader; select queues.pause('x')")
    assert (error.hint or "").startswith("Have an administrator run holdfast grant ")


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(psycopg.Error) as caught:
        psycopg.connect("host=/nonexistent dbname=x")
    assert type(translate(caught.value)) is errors.DatabaseUnavailable


def test_a_connection_that_was_closed_is_unavailable(db: Database) -> None:
    connection = db.connect()
    connection.close()
    with pytest.raises(errors.DatabaseUnavailable):
        Engine(connection).run(health.clock())


def test_the_error_of_the_driver_is_kept_as_the_cause(tx: psycopg.Connection[Any]) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        Engine(tx).run(queues.pause(""))
    assert isinstance(caught.value.__cause__, psycopg.Error)
