"""A front on which a test may also act as a worker, as tests of one database do.

A front refuses what belongs to a worker: a worker connects to its shard. Here it asks the shards in order,
reports to the shard of each task, and is registered on the first one.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg

from holdfast._install.schema import Sources
from holdfast.shards.catalog import Function, Route, read_catalog
from holdfast.shards.front_functions import function_statements, public_functions

TABLES = ("task", "outcome", "signal", "process", "access_token")
"""Those that tests read. Tests that write use the connections to the shards."""
EACH = {"queues.register_types"}
"""What a fleet does on every shard."""
_ACTOR = "null::text, null::text"
REPORTS = {
    "queues.finish": "results",
    "queues.heartbeat": "held",
    "queues.release": "held",
    "queues.record_killed": "killed",
}


def let_tests_work(front: str, shard: str) -> None:
    """Offer the functions for workers on this front, which are those of this shard."""
    with psycopg.connect(shard) as connection:
        catalog = read_catalog(connection, Sources())
    refused = [function for function in catalog.functions if function.route.kind == "shard"]
    offered = [
        replace(function, route=Route("each" if function.name in EACH else "first", None, None))
        for function in refused
    ]
    catalog = replace(catalog, functions=offered, views=[])
    with psycopg.connect(front) as connection:
        for statement in function_statements(catalog):
            if not statement.startswith("create type"):
                connection.execute(statement.encode())
        for statement in _tables(connection):
            connection.execute(statement.encode())
        for statement in (*public_functions(catalog), *_working(offered)):
            connection.execute(statement.replace("create function", "create or replace function", 1).encode())
        connection.execute("grant execute on all functions in schema holdfast_front to public")


def _tables(connection: psycopg.Connection[Any]) -> Iterator[str]:
    shards = [
        name for (name,) in connection.execute("select shard_name from holdfast_front.shard order by 1")
    ]
    for shard in shards:
        yield f"create schema tables_{shard}"
        yield (
            f"import foreign schema queues limit to ({', '.join(TABLES)}, test_clock) "
            f"from server holdfast_{shard} into tables_{shard}"
        )
    for table in (*TABLES, "test_clock"):
        parts = [f"select * from tables_{shard}.{table}" for shard in shards]
        yield f"create view queues.{table} as {' union all '.join(parts if table in TABLES else parts[:1])}"
    changed = "stands_at = new.stands_at, shifted_by = new.shifted_by"
    updates = "; ".join(f"update tables_{shard}.test_clock set {changed}" for shard in shards)
    yield f"create rule all_shards as on update to queues.test_clock do instead ({updates})"


def _working(functions: list[Function]) -> Iterator[str]:
    for function in functions:
        if function.name == "queues.claim":
            yield _declared(function, _claim(function))
        elif function.name in REPORTS:
            yield _declared(function, _report(function, REPORTS[function.name]))


def _declared(function: Function, body: str) -> str:
    return f"""create function {function.name}({function.arguments}) returns {function.result}
language plpgsql volatile as $front$
#variable_conflict use_column
{body}
$front$"""


def _claim(function: Function) -> str:
    return f"""declare _left integer := ${function.place_of("max_tasks")}; _found integer;
begin
  for _shard in 0 .. (select pg_catalog.max(s.shard_number) from holdfast_front.shard s) loop
    return query select c.* from {_called(function, "_shard", "max_tasks", "_left")} c;
    get diagnostics _found = row_count;
    _left := _left - _found;
    exit when _left <= 0;
  end loop;
end"""


def _report(function: Function, argument: str) -> str:
    return f"""declare _element jsonb;
begin
  for _element in select e.element from pg_catalog.jsonb_array_elements(${function.place_of(argument)})
    with ordinality e(element, n) order by e.n
  loop
    return query select c.* from {
        _called(
            function,
            "holdfast_front.shard_of((_element ->> 'task_id')::uuid)",
            argument,
            "pg_catalog.jsonb_build_array(_element)",
        )
    } c;
  end loop;
end"""


def _called(function: Function, shard: str, argument: str, given: str) -> str:
    passed = [given if name == argument else f"${n}" for n, (name, _) in enumerate(function.inputs, start=1)]
    return f"{function.proxy}({', '.join([shard, _ACTOR, *passed])})"
