"""Every function and view that a role may use has one route on a front. These tests need no front."""

import pytest

from holdfast._install.schema import Sources
from holdfast.shards.catalog import Catalog, Function, read_catalog, read_routes
from support.engine import Connection, rows

GRANTED = """
select distinct n.nspname || '.' || p.proname as name
from pg_proc p join pg_namespace n on n.oid = p.pronamespace cross join aclexplode(p.proacl) a
where n.nspname in ('queues', 'internal', 'comms') and a.grantee <> p.proowner
union
select distinct n.nspname || '.' || c.relname
from pg_class c join pg_namespace n on n.oid = c.relnamespace cross join aclexplode(c.relacl) a
where n.nspname in ('queues', 'internal', 'comms') and c.relkind = 'v' and a.grantee <> c.relowner
"""


@pytest.fixture
def catalog(admin: Connection) -> Catalog:
    return read_catalog(admin, Sources())


def test_everything_that_is_granted_has_a_route(admin: Connection) -> None:
    missing = {row["name"] for row in rows(admin, GRANTED)} - read_routes(admin, Sources()).keys()

    assert not missing, (
        f"add a line for each of {sorted(missing)} to src/holdfast/sql/front/routes.sql: "
        "which shard answers it on a front. The file explains the kinds."
    )


def test_every_route_leads_to_something_that_exists(admin: Connection, catalog: Catalog) -> None:
    known = {function.name for function in catalog.functions} | {view.name for view in catalog.views}

    assert read_routes(admin, Sources()).keys() - known == set()


def test_a_route_names_arguments_that_the_function_has(catalog: Catalog) -> None:
    for function in catalog.functions:
        for argument in (function.route.detail or "").split():
            assert function.has(argument), (function.name, argument)


def test_a_read_or_an_act_by_id_asks_only_the_shard_of_that_id(catalog: Catalog) -> None:
    """A function with an id that is not routed by it would miss the task, or do the act elsewhere."""
    by_id = {"id", "ids", "shard", "none"}

    def odd(function: Function) -> bool:
        return any(name in ("task_id", "task_ids") for name, _ in function.inputs) and (
            function.route.kind not in by_id
        )

    assert {function.name for function in catalog.functions if odd(function)} == set()
