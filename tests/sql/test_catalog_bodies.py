"""What the bodies of our functions contain: what they write, read and call, and how they tell the time."""

import re

from support.catalog import our_functions
from support.engine import Connection, rows

CLOCKS = {"clock", "new_task_id"}
MEASURES_ITSELF = {"take_sample"}


def _statements(body: str) -> str:
    """A body without what is only quoted or remarked."""
    return re.sub(r"'(?:[^']|'')*'", "''", re.sub(r"--.*", "", body)).lower()


def test_what_writes_is_volatile(admin: Connection) -> None:
    writes = r"\b(insert into|update queues|delete from|nextval|pg_notify|set_config|for update|for share)\b"
    wrong = [
        row["name"]
        for row in our_functions(admin, "p.provolatile <> 'v'")
        if re.search(writes, _statements(row["body"]))
    ]

    assert wrong == []


def test_what_reads_a_table_or_the_clock_is_not_immutable(admin: Connection) -> None:
    wrong = [
        row["name"]
        for row in our_functions(admin, "p.provolatile = 'i'")
        if re.search(
            r"\b(from|join) queues\.\w+(?!\s*\()|queues\.clock|session_user", _statements(row["body"])
        )
    ]

    assert wrong == []


def test_what_is_immutable_calls_nothing_that_is_not(admin: Connection) -> None:
    volatility = {row["name"]: row["volatility"] for row in our_functions(admin)}
    order = "isv"
    wrong = [
        (row["name"], called)
        for row in our_functions(admin)
        for called in re.findall(r"(?:queues|internal|comms)\.(\w+)\s*\(", _statements(row["body"]))
        if called in volatility
        and order.index(volatility[called]) > order.index(row["volatility"])
        and called not in CLOCKS
    ]

    assert wrong == []


TIME = (
    r"\bnow\s*\(|\b(current_timestamp|current_date|current_time|localtime|localtimestamp|timeofday)\b"
    r"|\w*_timestamp\s*\("
)


def test_only_the_clock_tells_the_time(admin: Connection) -> None:
    views = rows(
        admin,
        """select relname as name, pg_get_viewdef(oid) as body from pg_class
           where relnamespace in ('queues'::regnamespace, 'comms'::regnamespace) and relkind = 'v'""",
    )
    defaults = rows(
        admin,
        """select adrelid::regclass::text as name, pg_get_expr(adbin, adrelid) as body from pg_attrdef
           join pg_class c on c.oid = adrelid
           where c.relnamespace in ('queues'::regnamespace, 'comms'::regnamespace)""",
    )

    told = {
        row["name"]
        for row in [*our_functions(admin), *views, *defaults]
        if re.search(TIME, _statements(row["body"]).replace("to_timestamp(", "("))
    }
    assert told - MEASURES_ITSELF <= CLOCKS
    assert "clock" in told


def test_only_the_runners_build_statements_at_run_time(admin: Connection) -> None:
    dynamic = {
        row["name"]
        for row in our_functions(admin)
        if re.search(r"\bexecute\s+(format|\w*\s*\|\||_)", _statements(row["body"]))
    }

    # The statement that calls a function is built by call_checked, which also executes deallocate.
    assert dynamic == {"call_checked"}


def test_one_function_moves_waiting_tasks(admin: Connection) -> None:
    moving = {
        row["name"]
        for row in our_functions(admin)
        if {"delete from queues.ready", "insert into queues.ready"}
        <= set(re.findall(r"(?:delete from|insert into) queues\.ready\b", _statements(row["body"])))
    }

    assert moving == {"move_ready"}


def test_one_function_waits_for_the_row_of_a_task(admin: Connection) -> None:
    waits = (
        r"from queues\.(ready|lease|outcome|deletion)\b[^;]*\bfor (no key )?update\b(?!( of \w)? skip locked)"
    )
    waiting = {row["name"] for row in our_functions(admin) if re.search(waits, _statements(row["body"]))}

    # park has the lease of what it locks, and a retry brings back only what is still cancelled by the engine.
    assert waiting == {"lock_task", "park", "revive_children", "revive_dependants"}


def test_all_that_change_what_a_route_is_made_of_make_routes_invalid(admin: Connection) -> None:
    changes = r"\b(insert into|update|delete from) queues\.(task_type|namespace_login)\b"
    changing = {
        row["name"]: _statements(row["body"])
        for row in our_functions(admin)
        if re.search(changes, _statements(row["body"]))
    }

    assert changing.keys() == {
        "register_types",
        "add_to_namespace",
        "remove_from_namespace",
        "take_shard_settings",
    }
    for name, body in changing.items():
        *_, last = re.finditer(changes, body)
        assert "queues.renew_routes()" in body[last.end() :], name


def test_only_these_functions_open_a_subtransaction(admin: Connection) -> None:
    catching = {
        row["name"]
        for row in our_functions(admin)
        if re.search(r"\bexception\s+when\b", _statements(row["body"]))
    }

    # One act of a person may be refused among many, and one schedule of a batch; PostgreSQL 15 cannot check a
    # JSON path otherwise; what a function of a process has prepared stays after an error; a large claim does
    # without its turn if that takes too long; and a lock of a table ends with the block that took it.
    assert catching == {
        "act_on_tasks",
        "check_search",
        "decide_schedules",
        "call_checked",
        "hold_lanes",
        "add_route",
    }
