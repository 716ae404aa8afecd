"""Tables that keep facts: their rows stay as they are, also for the owner."""

import psycopg
import pytest

from support.catalog import names_of
from support.database import Database
from support.engine import Connection, rows

# tgtype of a trigger per statement, before: update or truncate, and delete. None of them fires on insert.
FACTS_STAY = {("append_only", 2 | 16 | 32), ("removed_by_retention_only", 2 | 8)}


def test_what_is_called_append_only_is_so_also_for_its_owner(admin: Connection) -> None:
    called = rows(
        admin,
        """select c.relname as name from pg_class c
           where c.relnamespace = 'queues'::regnamespace and c.relkind = 'r'
             and obj_description(c.oid, 'pg_class') ~* 'append-only|written once'""",
    )
    triggers = rows(
        admin,
        """select c.relname as name, t.tgname::text as trigger, t.tgtype::integer as type,
             t.tgenabled::text as enabled
           from pg_trigger t join pg_class c on c.oid = t.tgrelid
           where c.relnamespace in ('queues'::regnamespace, 'internal'::regnamespace)""",
    )
    protected = {row["name"]: set[tuple[str, int]]() for row in triggers}
    for row in triggers:
        protected[row["name"]].add((row["trigger"], row["type"]))
    assert {row["enabled"] for row in triggers} == {"A"}
    assert {"task", "error", "act"} < names_of(called)
    assert protected == dict.fromkeys(names_of(called), FACTS_STAY)


@pytest.mark.parametrize("table", ["task", "error", "act", "schedule_act", "access_act", "outbox_event"])
def test_the_owner_cannot_change_facts_by_mistake(shipped: Database, table: str) -> None:
    owner = shipped.connect(autocommit=False)
    column = rows(
        owner,
        "select attname from pg_attribute where attrelid = %s::regclass and attname like '%%_at' limit 1",
        [f"queues.{table}"],
    )[0]["attname"]
    for change in (
        f"update queues.{table} set {column} = {column}",
        f"delete from queues.{table}",
        f"truncate queues.{table}",
    ):
        owner.execute("set local role holdfast_owner")
        with pytest.raises(psycopg.Error, match=f"queues.{table} is append-only") as caught:
            owner.execute(change.encode())
        assert caught.value.sqlstate == "QF412"
        owner.rollback()


def test_no_table_of_the_engine_has_a_row_trigger_a_rule_or_a_foreign_key(admin: Connection) -> None:
    found = rows(
        admin,
        """select t.tgname::text as name from pg_trigger t join pg_class c on c.oid = t.tgrelid
           where c.relnamespace in ('queues'::regnamespace, 'internal'::regnamespace) and t.tgtype & 5 <> 0
           union all select conname from pg_constraint
           where connamespace in ('queues'::regnamespace, 'internal'::regnamespace) and contype = 'f'
           union all select r.rulename from pg_rewrite r join pg_class c on c.oid = r.ev_class
           where c.relnamespace in ('queues'::regnamespace, 'internal'::regnamespace) and c.relkind <> 'v'""",
    )

    assert found == []


def test_every_logged_table_has_a_primary_key(admin: Connection) -> None:
    """A publication for all tables refuses updates and deletes in the others, even of no rows."""
    found = rows(
        admin,
        """select c.oid::regclass::text as name from pg_class c
           where c.relnamespace in ('queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and c.relkind in ('r', 'p') and c.relpersistence = 'p'
             and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)""",
    )

    assert found == []


@pytest.mark.parametrize("table", ["task", "error"])
def test_what_was_asked_and_what_went_wrong_stays_as_it_is_until_retention(
    tx: Connection, table: str
) -> None:
    def functions_with(pattern: str) -> set[str]:
        found = rows(
            tx,
            """select p.proname::text as name from pg_proc p
               join pg_namespace n on n.oid = p.pronamespace
               where n.nspname in ('queues', 'internal', 'comms') and p.prosrc ~* %s""",
            [pattern],
        )
        return {row["name"] for row in found}

    assert functions_with(rf"insert into queues\.{table}\M")
    # The payload of the next generation.
    changes = {"task": {"begin_generations"}, "error": set[str]()}
    assert functions_with(rf"(update|truncate|merge into)\s+queues\.{table}\M") == changes[table]
    removes = {
        "task": {"forget_tasks"},
        "error": {"forget_tasks", "prune_steps", "prune_generations", "insert_tries"},
    }
    assert functions_with(rf"delete from queues\.{table}\M") == removes[table]


def test_no_sequence_is_unlogged_because_a_promoted_server_could_not_read_it(admin: Connection) -> None:
    found = rows(
        admin, "select oid::regclass::text from pg_class where relkind = 'S' and relpersistence = 'u'"
    )
    assert found == []
