"""What a front has to offer: the functions and views of a shard, each with its route."""

from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from holdfast._install.schema import Sources
from holdfast.errors import MigrationRefused

Kind = Literal[
    "id", "ids", "task", "batch", "after", "unique", "text", "first", "each", "numbered", "shard", "none"
]
Column = tuple[str, str]


@dataclass(frozen=True)
class Route:
    """Which shards answer, and what becomes of several answers: see the routes in `sql/front/catalog.sql`."""

    kind: Kind
    detail: str | None
    merge: str | None


@dataclass(frozen=True)
class Function:
    name: str
    identity: str
    route: Route
    arguments: str
    result: str
    returns_set: bool
    writes: bool
    inputs: list[Column]
    columns: list[Column]
    """Those of the rows that it returns; none if it returns a value."""
    composite: str | None
    """The name of its row type, if that is a type of its own and not a view."""
    grantees: list[str]

    @property
    def proxy(self) -> str:
        """The name of the function on the front that calls it on one shard."""
        return f"holdfast_front.{self.name.replace('.', '_')}"

    def place_of(self, argument: str) -> int:
        """The number of an argument, from 1."""
        return [name for name, _ in self.inputs].index(argument) + 1

    def has(self, argument: str) -> bool:
        return any(name == argument for name, _ in self.inputs)


@dataclass(frozen=True)
class View:
    name: str
    route: Route
    columns: list[Column]
    is_row_type: bool
    """Whether functions return its rows. Such a view has no column for the shard."""
    grantees: list[str]

    def has(self, column: str) -> bool:
        return any(name == column for name, _ in self.columns)


@dataclass(frozen=True)
class Catalog:
    schemas: dict[str, list[str]]
    """The roles that may use each."""
    functions: list[Function]
    views: list[View]


def read_routes(connection: psycopg.Connection[Any], sources: Sources) -> dict[str, Route]:
    rows = connection.execute(sources.section("front/catalog.sql", "routes").sql.encode()).fetchall()
    names = [row[0] for row in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MigrationRefused(f"sql/front/catalog.sql has two routes for {', '.join(twice)}")
    return {name: Route(*rest) for name, *rest in rows}


def read_catalog(connection: psycopg.Connection[Any], sources: Sources) -> Catalog:
    """Read what this shard offers. What has no route and no grant is internal."""
    routes = read_routes(connection, sources)
    schemas: dict[str, list[str]] = {}
    functions: list[Function] = []
    views: list[View] = []
    missing: list[str] = []
    for kind, name, identity, found in connection.execute(
        sources.section("front/catalog.sql", "catalog").sql.encode()
    ).fetchall():
        if kind == "schema":
            schemas[name] = found["grantees"]
            continue
        route = routes.get(name)
        if route is None:
            missing += [name] if found["grantees"] else []
            continue
        found["columns"] = [tuple(column) for column in found["columns"] or []]
        if kind == "view":
            views.append(View(name=name, route=route, **found))
        else:
            found["inputs"] = [tuple(column) for column in found["inputs"]]
            functions.append(Function(name=name, identity=identity, route=route, **found))
    if missing:
        raise MigrationRefused(
            f"a front would lack {', '.join(missing)}: add a route for each to sql/front/catalog.sql"
        )
    return Catalog(schemas, functions, views)
