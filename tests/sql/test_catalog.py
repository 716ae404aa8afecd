"""What the catalog says of our objects: owners, rights, pinned paths, comments. Over everything there is."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.database import Database
from support.engine import Connection, Row, rows

SQL = Path(str(files("holdfast"))) / "sql"
FILES = {path.stem: path for path in SQL.glob("functions/*/*.sql")}
DECLARATION = r"(?m)^ *create or replace function \w+\.(\w+)"
DECLARED = {name: path for path in FILES.values() for name in re.findall(DECLARATION, path.read_text())}

ROLES = [
    *("holdfast_client", "holdfast_process", "holdfast_worker"),
    *("holdfast_dispatcher", "holdfast_operator", "holdfast_reader"),
]

_SCHEDULE_ACTS = {"pause_schedule", "resume_schedule", "remove_schedule", "run_schedule"}
_CLIENT = {
    *("enqueue", "enqueue_many", "enqueue_for_client", "enqueue_simple", "enqueue_for_token"),
    *("enqueue_reusing", "find_reusable_run", "store_reusable_run"),
    *(
        "cancel",
        "reschedule",
        "explain",
        "list_tasks",
        "find_tasks",
        "count_tasks",
        "act_on_tasks",
        "watch",
        "watch_many",
    ),
    *("may_read_all", "has_role", "namespace", "clock", "status_of", "step_kind", "spec_hash"),
    *("tasks_of", "task_events_of", "task_errors_of"),
    *("watch_processes", "process_status_of", "cancel_send_email_task", "cancel_send_sms_task"),
    *("process_functions", "nudge_process"),
    *("add_schedule", "add_schedule_for_client", "declare_schedules"),
    *("emit", "receive", "tail_events"),
    *("create_email_message", "kickoff_send_email_task", "create_sms_message", "kickoff_send_sms_task"),
    *("signal", "signal_key", "fork", "run_timeline", "related_to", "batch_members", "children_of"),
    *("enqueue_after", "enqueue_unique"),
    *_SCHEDULE_ACTS,
}
_HANDLERS = {
    *("send_email_supervisor", "get_email_payload", "record_email_success", "record_email_failure"),
    "last_error",
    *("send_sms_supervisor", "get_sms_payload", "record_sms_success", "record_sms_failure"),
    *("repair_send_email", "repair_send_sms", "find_orphans", "processes_to_repair", "prune_processes"),
}
_READER = {
    *("send_email_history", "send_sms_history"),
    *("health", "count_activity"),
    *("watch_processes", "process_status_of"),
    *("process_functions", "list_processes", "list_process_instances"),
    *(
        "explain",
        "list_tasks",
        "find_tasks",
        "count_tasks",
        "list_error_groups",
        "list_activity",
        "tail_events",
    ),
    *("list_activity_of", "rank_types", "list_waiting_keys", "list_deliveries", "held_by"),
    *("watch", "watch_many"),
    *("run_timeline", "related_to", "children_of"),
    *("may_read_all", "has_role", "namespace", "clock", "status_of", "step_kind", "spec_hash", "tokens_at"),
    *("tasks_of", "task_events_of", "task_errors_of"),
}
_ACCESS = {
    *("create_token", "renew_token", "revoke_token", "check_token"),
    *("open_session", "check_session", "close_session", "record_reveal", "take_sample"),
}
MAY_EXECUTE = {
    "holdfast_client": _CLIENT,
    "holdfast_process": _CLIENT
    | {"enqueue_for_process", "add_schedule_for_process"}
    | {"nudge", "next_check", "refuse_change"}
    | {"register_process", "record_process_files", "note_supervision", "ending_of"}
    | {"orphans", "is_supervised", "actor"},
    "holdfast_worker": _HANDLERS
    | {
        *("reserve_send", "keep_message"),
        *("claim", "next_due", "dequeue_next_available_task", "heartbeat", "finish", "release", "sweep"),
        *("due_schedules", "next_firing", "plan_schedule", "fire_schedule"),
        *("prune_firings", "take_sample", "count_errors"),
        *(
            "register_worker",
            "retire_worker",
            "mark_idle",
            "hold_wakeups",
            "release_wakeups",
            "notify_idle",
            "lead",
            "resign",
            "rest",
            "fleet_state",
        ),
        *(
            "recover_workers",
            "prune",
            "record_killed",
            "record_activity",
            "record_environment",
            "register_types",
            "unserved_queues",
            "explain",
            "run_function",
        ),
        *("may_read_all", "has_role", "namespace", "clock", "status_of", "step_kind", "spec_hash"),
        *("emit", "receive", "prune_events", "prune_inbox"),
        "tidy_lanes",
        *("record_step", "record_steps", "read_steps", "wake_waiting", "wake_joined"),
        *("record_changes", "start_children"),
    },
    "holdfast_dispatcher": {"dispatcher_heartbeat", "claim_events", "settle_events", "retire_dispatcher"},
    "holdfast_operator": _READER
    | _SCHEDULE_ACTS
    | {"signal", "signal_key", "fork", "batch_members", "read_callback", "answer_callback"}
    | _ACCESS
    | {
        *("subscribe", "unsubscribe", "pause_subscription", "resume_subscription", "rotate_secret"),
        *("test_subscription", "redrive_events", "prune_events", "prune_inbox"),
        *("cancel", "retry", "replay", "delete_task", "restore_task", "reschedule", "pause", "resume"),
        *("act_on_tasks", "count_errors"),
        *("sweep", "recover_workers", "clear_mailbox", "erase_messages", "record_delivery"),
        *("prune", "set_retention", "drop_retention", "prune_processes"),
        *("cancel_send_email_task", "cancel_send_sms_task"),
        *("sweep", "recover_workers"),
        *("set_limit", "drop_limit"),
        "nudge_process",
    },
    "holdfast_reader": _READER,
}
_SENDS = (
    *("send_status", "send_email_status", "send_sms_status", "send_event"),
    *("process_status", "registered_process"),
)
_SCHEDULES = ("schedule_status", "schedule_event", "namespace_member")
_EVENTS = ("event_status", "delivery_status")
_RUNS = {"step_status", "step_try_status", "signal_status", "wait_status"}
_VIEWS = {
    *("task_status", "task_event", "task_error"),
    *_RUNS,
    *("queue_status", "queue_act"),
    *("worker_status", "worker_loss", "provenance", "registered_type", "retention_policy"),
    *("queue_status", "queue_act", "limit_status"),
    *("worker_status", "worker_loss"),
    *("outbox_status", "dispatcher_status", "subscription_event"),
    *("mailbox", "send_cap_status"),
    *_SENDS,
    *_EVENTS,
    *_SCHEDULES,
}
MAY_SELECT = {
    "holdfast_client": {"task_status", "task_event", "task_error", *_RUNS, *_SENDS, *_EVENTS, *_SCHEDULES},
    "holdfast_process": {"task_status", "task_event", "task_error", *_RUNS, *_SENDS, *_EVENTS, *_SCHEDULES},
    "holdfast_worker": set[str](),
    "holdfast_dispatcher": set[str](),
    "holdfast_operator": _VIEWS | {"access_token_status", "access_event"},
    "holdfast_reader": _VIEWS,
}

# What others may call and that runs with the caller's own rights, because it has to see who really calls.
INVOKERS = {
    *(
        "enqueue",
        "enqueue_many",
        "enqueue_reusing",
        "enqueue_after",
        "enqueue_unique",
        "add_schedule",
        "act_on_tasks",
        "run_function",
        "may_read_all",
        "has_role",
        "clock",
        "status_of",
        "step_kind",
        "spec_hash",
    ),
    *("next_check", "refuse_change", "actor"),
    *("tokens_at", "process_status_of"),
    *("tasks_of", "task_events_of", "task_errors_of"),
}
# Without a path of their own, so that the planner can put them into the query that calls them.
INLINED = {
    *("clock", "new_task_id", "nth_task_id", "safe_text", "spec_hash"),
    *("allow_async_commit", "is_simple_task", "is_simple_payload", "are_simple_options", "with_defaults"),
    *("lanes_of", "limit_lock_of", "qualified_key"),
    *(
        "error_message",
        "status_of",
        "step_kind",
        "step_code",
        "matches",
        "is_subscribed",
        "engine_event_types",
    ),
    *("tasks_of", "task_events_of", "task_errors_of"),
    "namespace_of_login",
    "process_status_of",
}
CLOCKS = {"clock", "new_task_id"}


@pytest.fixture
def admin(shipped: Database) -> Iterator[Connection]:
    yield shipped.connect()
    shipped.close()


def _functions(admin: Connection, where: str = "true") -> list[Row]:
    return rows(
        admin,
        f"""select p.proname as name, p.oid, pg_get_userbyid(p.proowner) as owner, p.prosecdef as definer,
              coalesce(p.proconfig, '{{}}') as config, p.provolatile::text as volatility, p.prosrc as body,
              obj_description(p.oid, 'pg_proc') as comment, n.nspname as schema
            from pg_proc p join pg_namespace n on n.oid = p.pronamespace
            where n.nspname in ('queues', 'internal', 'comms') and {where} order by 1""",
    )


def _names(found: list[Row]) -> set[str]:
    return {row["name"] for row in found}


def test_every_function_has_a_file_and_every_file_begins_with_the_function_it_is_named_after(
    admin: Connection,
) -> None:
    assert sorted(row["name"] for row in _functions(admin)) == sorted(DECLARED)
    firsts = [re.findall(DECLARATION, path.read_text())[0] for path in FILES.values()]
    assert firsts == list(FILES)


def test_a_file_with_several_functions_adds_only_thin_entry_points() -> None:
    for path in FILES.values():
        bodies = re.findall(r"(?ms)^create or replace function .*?\$\$(.*?)\$\$;$", path.read_text())
        for body in bodies[1:]:
            assert len(body.strip().splitlines()) == 1, path.name


def test_everything_belongs_to_the_owner(admin: Connection) -> None:
    strangers = rows(
        admin,
        """select 'schema' as kind, nspname::text as name, nspowner::regrole::text as owner from pg_namespace
           where nspname in ('queues', 'internal', 'comms')
           union all select 'function', proname, proowner::regrole::text from pg_proc
           where pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
           union all select 'relation', relname, relowner::regrole::text from pg_class
           where relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
           union all select 'type', typname, typowner::regrole::text from pg_type
           where typnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)""",
    )

    assert len(strangers) > 100
    assert [row for row in strangers if row["owner"] != "holdfast_owner"] == []


def test_every_definer_function_pins_its_path(admin: Connection) -> None:
    loose = [
        row["name"]
        for row in _functions(admin, "p.prosecdef")
        if "search_path=pg_catalog, pg_temp" not in row["config"]
    ]

    assert loose == []


def test_every_other_function_pins_its_path_too_unless_it_is_inlined(admin: Connection) -> None:
    loose = {
        row["name"] for row in _functions(admin) if "search_path=pg_catalog, pg_temp" not in row["config"]
    }

    assert loose == INLINED


def test_what_is_inlined_names_every_schema(admin: Connection) -> None:
    """Its operators are found by the path of the caller, which is pinned; everything else is qualified."""
    for row in _functions(admin):
        if row["name"] in INLINED:
            called = set(re.findall(r"(?<![\w.])([a-z_]\w*)\s*\(", re.sub(r"'[^']*'", "''", row["body"])))
            assert called <= {
                "any",
                "coalesce",
                "case",
                "and",
                "or",
                "values",
                "extract",
                "select",
                "from",
            }, row["name"]


def test_only_what_has_to_see_its_caller_runs_with_the_callers_rights(admin: Connection) -> None:
    granted = set().union(*MAY_EXECUTE.values())

    assert _names(_functions(admin, "not p.prosecdef")) & granted == INVOKERS
    assert _names(_functions(admin, "p.prosecdef")) <= granted


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_execute_exactly_what_it_should(admin: Connection, role: str) -> None:
    may = rows(
        admin,
        """select p.proname as name from pg_proc p join pg_namespace n on n.oid = p.pronamespace
           where n.nspname in ('queues', 'internal', 'comms') and has_schema_privilege(%s, n.oid, 'usage')
             and has_function_privilege(%s, p.oid, 'execute')""",
        [role, role],
    )

    assert _names(may) == MAY_EXECUTE[role]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_select_exactly_what_it_should_and_write_nothing(admin: Connection, role: str) -> None:
    may = rows(
        admin,
        """select c.relname as name, privilege from pg_class c
           cross join unnest(case c.relkind when 'S' then array['select', 'update', 'usage'] else
             array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger'] end) privilege
           where c.relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
             and case c.relkind when 'S' then has_sequence_privilege(%s, c.oid, privilege)
               else has_table_privilege(%s, c.oid, privilege) end""",
        [role, role],
    )

    assert {(row["name"], row["privilege"]) for row in may} == {(name, "select") for name in MAY_SELECT[role]}


@pytest.mark.parametrize("role", ROLES)
def test_no_role_may_create_anything_in_our_schemas(admin: Connection, role: str) -> None:
    may = rows(
        admin,
        """select nspname from pg_namespace
           where nspname in ('queues', 'internal', 'comms') and has_schema_privilege(%s, oid, 'create')""",
        [role],
    )

    assert may == []


def test_everybody_may_do_nothing(admin: Connection) -> None:
    public = rows(
        admin,
        """select 'function' as kind, p.oid::regprocedure::text as name from pg_proc p
           where p.pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and has_function_privilege('public', p.oid, 'execute')
           union all
           select 'relation', c.oid::regclass::text from pg_class c, aclexplode(c.relacl) a
           where c.relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace) and a.grantee = 0
           union all
           select 'type', t.oid::regtype::text from pg_type t left join pg_class c on c.oid = t.typrelid
           where t.typnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and t.typtype in ('c', 'd', 'e') and coalesce(c.relkind, 'c') = 'c'
             and has_type_privilege('public', t.oid, 'usage')
           union all
           select 'schema', n.nspname from pg_namespace n
           where n.nspname in ('queues', 'internal', 'comms')
             and has_schema_privilege('public', n.oid, 'usage, create')""",
    )

    assert public == []


def test_what_is_created_later_is_not_everybodys_either(shipped: Database) -> None:
    conn = shipped.connect(autocommit=False)
    conn.execute("set local role holdfast_owner")
    conn.execute("create function queues.later() returns integer language sql as 'select 1'")
    conn.execute("create type queues.later_type as (n integer)")

    (row,) = rows(
        conn,
        """select has_function_privilege('public', 'queues.later()', 'execute') as function,
             has_type_privilege('public', 'queues.later_type', 'usage') as type""",
    )
    assert row == {"function": False, "type": False}
    conn.rollback()


def test_nobody_but_the_owner_and_our_roles_is_granted_anything(admin: Connection) -> None:
    grantees = rows(
        admin,
        """select distinct a.grantee::regrole::text as name from (
             select relacl as acl from pg_class
             where relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             union all select proacl from pg_proc
             where pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             union all select nspacl from pg_namespace where nspname in ('queues', 'internal', 'comms')) o,
           aclexplode(o.acl) a""",
    )

    assert _names(grantees) <= {"holdfast_owner", *ROLES}


def test_our_roles_are_not_logins_and_have_no_powers(admin: Connection) -> None:
    powerful = rows(
        admin,
        """select rolname from pg_roles where rolname = any(%s)
             and (rolsuper or rolcreaterole or rolcreatedb or rolcanlogin or rolreplication
               or rolbypassrls)""",
        [["holdfast_owner", *ROLES]],
    )

    assert powerful == []


def test_roles_are_members_of_one_another_only_as_designed(admin: Connection) -> None:
    members = rows(
        admin,
        """select m.member::regrole::text || ' in ' || m.roleid::regrole::text as name from pg_auth_members m
           where m.member::regrole::text = any(%s)""",
        [["holdfast_owner", *ROLES]],
    )

    assert _names(members) == {
        "holdfast_process in holdfast_client",
        "holdfast_operator in holdfast_reader",
        "holdfast_owner in holdfast_process",
        "holdfast_owner in holdfast_worker",
        "holdfast_owner in holdfast_dispatcher",
        "holdfast_owner in holdfast_operator",
    }


def test_functions_ask_for_roles_in_a_way_that_works_without_them(admin: Connection) -> None:
    """A database of a single login has no roles, and PostgreSQL raises an error about those that it lacks."""
    asking = rows(
        admin,
        r"""select p.oid::regprocedure::text as name from pg_proc p
           where p.pronamespace in ('queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and p.prosrc ~ $$pg_has_role\([^)]*'holdfast_|'holdfast_\w+'::$$""",
    )
    assert _names(asking) == set()


def test_every_function_has_the_comment_that_its_file_gives_it(admin: Connection) -> None:
    for row in _functions(admin):
        text = DECLARED[row["name"]].read_text()
        (written,) = re.findall(
            rf"(?ms)^comment on function \w+\.{row['name']}\([^;]*? is\s+'((?:[^']|'')+)';$", text
        )
        assert row["comment"] == written.replace("''", "'"), row["name"]


def test_every_table_and_view_has_a_comment(admin: Connection) -> None:
    bare = rows(
        admin,
        """select c.relname from pg_class c
           where c.relnamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and c.relkind in ('r', 'v') and obj_description(c.oid, 'pg_class') is null""",
    )

    assert bare == []


def test_one_function_per_name(admin: Connection) -> None:
    names = [row["name"] for row in _functions(admin)]

    assert len(names) == len(set(names))


def _statements(body: str) -> str:
    """A body without what is only quoted or remarked."""
    return re.sub(r"'(?:[^']|'')*'", "''", re.sub(r"--.*", "", body)).lower()


def test_what_writes_is_volatile(admin: Connection) -> None:
    writes = r"\b(insert into|update queues|delete from|nextval|pg_notify|set_config|for update|for share)\b"
    wrong = [
        row["name"]
        for row in _functions(admin, "p.provolatile <> 'v'")
        if re.search(writes, _statements(row["body"]))
    ]

    assert wrong == []


def test_what_reads_a_table_or_the_clock_is_not_immutable(admin: Connection) -> None:
    wrong = [
        row["name"]
        for row in _functions(admin, "p.provolatile = 'i'")
        if re.search(
            r"\b(from|join) queues\.\w+(?!\s*\()|queues\.clock|session_user", _statements(row["body"])
        )
    ]

    assert wrong == []


def test_what_is_immutable_calls_nothing_that_is_not(admin: Connection) -> None:
    volatility = {row["name"]: row["volatility"] for row in _functions(admin)}
    order = "isv"
    wrong = [
        (row["name"], called)
        for row in _functions(admin)
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
        for row in [*_functions(admin), *views, *defaults]
        if re.search(TIME, _statements(row["body"]).replace("to_timestamp(", "("))
    }
    assert told <= CLOCKS
    assert "clock" in told


def test_only_the_runner_builds_statements_at_run_time(admin: Connection) -> None:
    dynamic = {
        row["name"]
        for row in _functions(admin)
        if re.search(r"\bexecute\s+(format|\w*\s*\|\||_)", _statements(row["body"]))
    }

    assert dynamic == {"run_function"}


def test_no_function_that_workers_call_opens_a_subtransaction(admin: Connection) -> None:
    catching = {
        row["name"]
        for row in _functions(admin)
        if re.search(r"\bexception\s+when\b", _statements(row["body"]))
    }

    # One act of a person may be refused among many; and PostgreSQL 15 cannot check a JSON path otherwise.
    assert catching == {"act_on_tasks", "check_search"}


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
    assert {"task", "error", "act"} < _names(called)
    assert protected == dict.fromkeys(_names(called), FACTS_STAY)


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


def test_nothing_that_an_application_may_call_lets_its_commit_pass_before_the_disk(admin: Connection) -> None:
    applications = ROLES[:2] + ROLES[4:]
    may = set().union(*(MAY_EXECUTE[role] for role in applications))
    lowers = r"allow_async_commit|synchronous_commit', '(?!on)"
    assert {row["name"] for row in _functions(admin) if re.search(lowers, row["body"])} & may == set()


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


def test_every_view_is_a_barrier(admin: Connection) -> None:
    leaky = rows(
        admin,
        """select relname from pg_class
           where relnamespace in ('queues'::regnamespace, 'comms'::regnamespace) and relkind = 'v'
             and not coalesce(reloptions, '{}') @> '{security_barrier=true}'""",
    )

    assert leaky == []


def test_no_function_says_that_it_leaks_nothing(admin: Connection) -> None:
    assert _names(_functions(admin, "p.proleakproof")) == set()


def test_no_argument_is_unnamed(admin: Connection) -> None:
    unnamed: list[Any] = rows(
        admin,
        """select proname from pg_proc
           where pronamespace in (
             'queues'::regnamespace, 'internal'::regnamespace, 'comms'::regnamespace)
             and pronargs > 0 and (proargnames is null or '' = any(proargnames))""",
    )

    assert unnamed == []


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
    assert functions_with(rf"(update|truncate|merge into)\s+queues\.{table}\M") == set()
    assert functions_with(rf"delete from queues\.{table}\M") == {"forget_tasks"}


def test_no_line_of_sql_is_longer_than_120_characters() -> None:
    long = [
        f"{path.relative_to(SQL)}:{number}"
        for path in sorted(SQL.rglob("*.sql"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > 120
    ]
    assert long == []
