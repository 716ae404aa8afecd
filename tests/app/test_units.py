"""Calls of an application that need a unit which the database does without."""

import psycopg
import pytest

from holdfast import App
from holdfast._install.schema import Sources
from holdfast.errors import NotInstalled, UnitNotInstalled, translate
from holdfast.sql.optional_units import unit_that_lacks
from support.database import Database


def test_what_needs_no_unit_works_without_them(core_db: Database) -> None:
    app = App(core_db.dsn)

    @app.task("shop.charge")
    def charge(amount: int) -> None: ...

    handle = charge.enqueue(amount=7)
    assert handle.status() == "pending"
    app.close()


def test_an_event_without_events_names_the_unit_and_how_to_add_it(core_db: Database) -> None:
    app = App(core_db.dsn)
    with pytest.raises(UnitNotInstalled, match=r"no events.*Run holdfast migrate --with events\."):
        app.emit("order.created", {"order": 7})
    app.close()


@pytest.mark.parametrize("unit", ["messages", "events", "web"])
def test_every_function_and_view_of_a_unit_is_known_to_be_of_that_unit(core_db: Database, unit: str) -> None:
    (part,) = (part for part in Sources().units if part.unit == unit)
    (absent,) = (part for part in Sources().absent if part.unit == unit)
    stated = "".join(piece.sql for piece in [*part.of("functions"), *part.of("views")])
    instead = "".join(piece.sql for piece in [*absent.of("functions"), *absent.of("views")])
    connection = core_db.connect()
    for line in stated.splitlines():
        kind, _, rest = line.removeprefix("create or replace ").partition(" ")
        name = rest.partition("(")[0].partition(" ")[0]
        if not line.startswith("create or replace ") or f" {name}" in instead:
            continue
        called = f"select {name}()" if kind == "function" else f"select from {name}"
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(called.encode())
        error = translate(caught.value)
        assert isinstance(error, UnitNotInstalled), name
        assert error.hint == f"Run holdfast migrate --with {unit}."


def test_what_belongs_to_no_unit_is_a_schema_that_is_missing_or_old(core_db: Database) -> None:
    with pytest.raises(psycopg.Error) as caught:
        core_db.connect().execute("select queues.no_such_function()")
    error = translate(caught.value)
    assert type(error) is NotInstalled
    assert unit_that_lacks('relation "public.event_status" does not exist') is None
