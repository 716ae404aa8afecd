"""What each role may execute and select according to the catalog, and that nothing else is granted."""

import re

import pytest

from support.catalog import names_of, our_functions
from support.database import Database
from support.engine import Connection, rows
from support.roles import ROLES

_SCHEDULE_ACTS = {"pause_schedule", "resume_schedule", "remove_schedule", "run_schedule"}
_CLIENT = {
    *("enqueue", "enqueue_many", "enqueue_for_client", "enqueue_simple", "enqueue_for_token"),
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
    "installed_units",
    *("tasks_of", "task_events_of", "task_errors_of"),
    *("watch_processes", "process_status_of", "cancel_send_email_task", "cancel_send_sms_task"),
    *("start_process", "nudge_process", "cancel_process"),
    *("add_schedule", "add_schedule_for_client", "declare_schedules"),
    *("emit", "receive", "tail_events"),
    *("create_email_message", "kickoff_send_email_task", "create_sms_message", "kickoff_send_sms_task"),
    *("signal", "signal_key", "fork", "run_timeline", "related_to", "batch_members", "children_of"),
    *("enqueue_after", "enqueue_unique"),
    *_SCHEDULE_ACTS,
}
_CALLED = {
    *("send_email_supervisor", "get_email_payload", "record_email_success", "record_email_failure"),
    *("send_sms_supervisor", "get_sms_payload", "record_sms_success", "record_sms_failure"),
    *("repair_send_email", "repair_send_sms", "cancel_send_email_task", "cancel_send_sms_task"),
    *("send_email_history", "send_sms_history"),
}
_READER = {
    *("send_email_history", "send_sms_history"),
    *("health", "count_activity"),
    *("watch_processes", "process_status_of"),
    *("process_history", "list_processes", "list_process_instances"),
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
    "installed_units",
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
    "holdfast_worker": {
        *("last_error", "find_orphans", "processes_to_repair", "prune_processes"),
        *("reserve_send", "keep_message"),
        *("claim", "next_due", "dequeue_next_available_task", "heartbeat", "finish", "release", "sweep"),
        *("due_schedules", "next_firing", "decide_schedules"),
        *("prune_firings", "take_sample"),
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
            "handled_elsewhere",
            "run_function",
        ),
        *("may_read_all", "has_role", "namespace", "clock", "status_of", "step_kind", "spec_hash"),
        "installed_units",
        *("emit", "receive", "prune_events", "prune_inbox"),
        "tidy_lanes",
        *("record_step", "record_steps", "read_steps", "read_results", "wake_waiting", "wake_joined"),
        *("record_changes", "start_children", "due_chores", "do_chores", "postpone_chore"),
    },
    "holdfast_dispatcher": {
        "installed_units",
        "dispatcher_heartbeat",
        "claim_events",
        "settle_events",
        "retire_dispatcher",
    },
    "holdfast_operator": _READER
    | _SCHEDULE_ACTS
    | {"signal", "signal_key", "fork", "batch_members", "read_callback", "answer_callback"}
    | _ACCESS
    | {
        *("subscribe", "unsubscribe", "pause_subscription", "resume_subscription", "rotate_secret"),
        *("test_subscription", "redrive_events", "prune_events", "prune_inbox"),
        *("cancel", "retry", "replay", "delete_task", "restore_task", "reschedule", "pause", "resume"),
        "act_on_tasks",
        *("sweep", "recover_workers", "clear_mailbox", "erase_messages", "record_delivery"),
        *("prune", "set_retention", "drop_retention", "prune_processes"),
        *("cancel_send_email_task", "cancel_send_sms_task"),
        *("sweep", "recover_workers", "due_chores", "do_chores", "postpone_chore"),
        *("set_limit", "drop_limit"),
        *("nudge_process", "cancel_process"),
    },
    "holdfast_reader": _READER,
    "holdfast_caller": _CALLED,
}
_SENDS = (
    *("send_status", "send_email_status", "send_sms_status", "send_event"),
    *("process_status", "registered_process"),
)
_SCHEDULES = ("schedule_status", "schedule_event", "namespace_member")
_EVENTS = ("event_status", "delivery_status")
_RUNS = {"step_status", "signal_status", "wait_status"}
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
    "holdfast_caller": set[str](),
}

# What others may call and that runs with the caller's own rights, because it has to see who really calls.
INVOKERS = {
    *(
        "enqueue",
        "enqueue_many",
        "enqueue_after",
        "enqueue_unique",
        "add_schedule",
        "act_on_tasks",
        "may_read_all",
        "clock",
        "status_of",
        "step_kind",
        "spec_hash",
    ),
    *("next_check", "refuse_change"),
    *("tokens_at", "process_status_of"),
    *("tasks_of", "task_errors_of"),
}


def test_only_what_has_to_see_its_caller_runs_with_the_callers_rights(admin: Connection) -> None:
    granted = set().union(*MAY_EXECUTE.values())

    assert names_of(our_functions(admin, "not p.prosecdef")) & granted == INVOKERS
    assert names_of(our_functions(admin, "p.prosecdef")) - granted == {"call_function"}


def test_what_calls_the_functions_of_others_belongs_to_a_role_that_cannot_name_it(admin: Connection) -> None:
    (found,) = rows(
        admin,
        """select p.proowner::regrole::text as owner, p.prosecdef, p.proacl::text as acl,
             has_schema_privilege('holdfast_caller', p.pronamespace, 'usage') as may_name_it
           from pg_proc p where p.oid = 'internal.call_function(text, jsonb)'::regprocedure""",
    )

    assert found == {
        "owner": "holdfast_caller",
        "prosecdef": True,
        "acl": "{holdfast_caller=X/holdfast_caller}",
        "may_name_it": False,
    }


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_execute_exactly_what_it_should(admin: Connection, role: str) -> None:
    may = rows(
        admin,
        """select p.proname as name from pg_proc p join pg_namespace n on n.oid = p.pronamespace
           where n.nspname in ('queues', 'internal', 'comms') and has_schema_privilege(%s, n.oid, 'usage')
             and has_function_privilege(%s, p.oid, 'execute')""",
        [role, role],
    )

    assert names_of(may) == MAY_EXECUTE[role]


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

    assert names_of(grantees) <= {"holdfast_owner", *ROLES}


def test_one_function_alone_sets_how_long_the_callers_commit_waits(admin: Connection) -> None:
    sets = r"set_config\('synchronous_commit'|set local"
    assert {row["name"] for row in our_functions(admin) if re.search(sets, row["body"])} == {"commit_to_disk"}
