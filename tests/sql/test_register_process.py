"""Who may register a process, and what is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.engine import Connection, refused, rows, value

FUNCTIONS = {
    "supervisor": "loans.loans_supervisor",
    "repair": "loans.repair_loans",
    "cancel": "loans.cancel_loans_task",
    "history": "loans.loans_history",
}
PINNED = "security definer set search_path = pg_catalog, pg_temp"


@pytest.fixture
def loans(tx: Connection) -> Connection:
    """The objects of a process that belongs to a role of its own."""
    tx.execute("create role loans_owner in role holdfast_process")
    tx.execute("create role thief in role holdfast_process")
    tx.execute("create schema loans authorization loans_owner")
    with _as(tx, "loans_owner"):
        tx.execute("create table loans.loans_task (loans_task_id bigint primary key)")
        for name in ("loans_supervisor", "repair_loans"):
            tx.execute(
                f"""create function loans.{name}(payload jsonb) returns jsonb language sql {PINNED}
                    as 'select payload'""".encode()
            )
        tx.execute(
            f"""create function loans.cancel_loans_task(loans_task_id bigint, reason text) returns text
                language sql {PINNED} as 'select reason'""".encode()
        )
        tx.execute(
            f"""create function loans.loans_history(loans_task_id bigint) returns table (
                at timestamptz, what text, reason text, task_id uuid) language sql {PINNED}
                as 'select null::timestamptz, null::text, null::text, null::uuid'""".encode()
        )
        _grant(tx)
    return tx


def _grant(tx: Connection) -> None:
    tx.execute("revoke execute on all functions in schema loans from public")
    tx.execute("grant usage on schema loans to holdfast_caller")
    tx.execute("grant execute on all functions in schema loans to holdfast_caller")


@contextmanager
def _as(tx: Connection, role: str) -> Iterator[None]:
    tx.execute(f"set local role {role}".encode())
    try:
        yield
    finally:
        if tx.info.transaction_status.name != "INERROR":
            tx.execute("reset role")


def _register(tx: Connection, role: str, process: str = "loans", **given: str) -> None:
    arguments = {"root_table": "loans_task", **FUNCTIONS, **given}
    named = ", ".join(f"{name} => %s" for name in arguments)
    tx.execute(f"set local role {role}".encode())
    tx.execute(f"select queues.register_process(%s, {named})", [process, *arguments.values()])
    tx.execute("reset role")


def test_its_owner_registers_it_and_may_do_so_again(loans: Connection) -> None:
    _register(loans, "loans_owner")
    _register(loans, "loans_owner", kind="decision")

    (row,) = rows(loans, "select * from queues.registered_process where process = 'loans'")
    assert (row["kind"], row["schema_name"], row["root_table"]) == ("decision", "loans", "loans_task")
    assert {name: row[name] for name in FUNCTIONS} == FUNCTIONS


def test_ours_are_registered(tx: Connection) -> None:
    found = rows(
        tx, "select process, repair, cancel from queues.registered_process where schema_name = 'comms'"
    )
    assert found == [
        {
            "process": f"comms.send_{channel}",
            "repair": f"comms.repair_send_{channel}",
            "cancel": f"comms.cancel_send_{channel}_task",
        }
        for channel in ("email", "sms")
    ]


def test_another_process_owner_may_not(loans: Connection) -> None:
    with refused(loans, "QF403", "thief may not register the process loans", "loans_owner"):
        _register(loans, "thief")


def test_a_name_of_another_schema_cannot_be_taken(loans: Connection) -> None:
    with refused(loans, "QF400", "there is no table comms.loans_task"):
        _register(loans, "loans_owner", "comms.loans")
    with refused(loans, "QF403", "must be in the schema loans"):
        _register(loans, "loans_owner", supervisor="comms.send_email_supervisor")


def test_a_function_of_another_owner_is_refused(loans: Connection) -> None:
    loans.execute("alter function loans.repair_loans(jsonb) owner to thief")
    with refused(loans, "QF403", "must be in the schema loans and belong to loans_owner"):
        _register(loans, "loans_owner")


@pytest.mark.parametrize(
    "change",
    [
        "grant execute on function loans.repair_loans(jsonb) to public",
        "alter function loans.repair_loans(jsonb) security invoker",
        "alter function loans.repair_loans(jsonb) reset search_path",
        "drop function loans.repair_loans(jsonb)",
    ],
)
def test_a_function_that_breaks_the_rules_is_refused(loans: Connection, change: str) -> None:
    loans.execute(change.encode())
    with refused(loans, "QF400", "there is no function loans.repair_loans(jsonb)"):
        _register(loans, "loans_owner")


def test_an_owner_without_the_authority_is_refused(loans: Connection) -> None:
    loans.execute("revoke holdfast_process from loans_owner")
    loans.execute("grant execute on function queues.register_process to loans_owner")
    loans.execute("grant usage on schema queues to loans_owner")
    with refused(loans, "QF403", "not a member of holdfast_process"):
        _register(loans, "loans_owner")


def test_what_is_noted_must_be_a_task_of_its_supervisor_and_cannot_be_taken_back(loans: Connection) -> None:
    _register(loans, "loans_owner")
    task = value(
        loans,
        """select queues.enqueue(
             'loans.x', '{"task_type": "db_function", "db_function": "loans.loans_supervisor"}')""",
    )
    other = value(
        loans,
        """select queues.enqueue('loans.x', '{"task_type": "db_function", "db_function": "loans.other"}')""",
    )
    with refused(loans, "QF400", "does not run loans.loans_supervisor"):
        loans.execute("select queues.note_supervision('loans', 1, %s)", [other])
    with refused(loans, "QF404", "there is no process nothing"):
        loans.execute("select queues.note_supervision('nothing', 1, %s)", [task])
    loans.execute("select queues.note_supervision('loans', 1, %s)", [task])
    loans.execute("select queues.note_supervision('loans', 1, null, decision => 'failed')")
    with refused(loans, "QF412", "loans 1 has ended"):
        loans.execute("select queues.note_supervision('loans', 1, %s)", [task])


def test_the_supervisor_of_the_kind_python_is_a_type_of_its_schema(loans: Connection) -> None:
    for other in ("loans", "elsewhere.supervise", "loans.Supervise"):
        with refused(loans, "QF400", "must be a type of tasks that begins with loans."):
            _register(loans, "loans_owner", kind="python", supervisor=other)
    _register(loans, "loans_owner", kind="python", supervisor="loans.supervise")
    task = value(loans, "select queues.enqueue('loans.supervise', '{}')")
    for type_name, payload in (
        ("loans.other", "{}"),
        ("loans.supervise", '{"task_type": "db_function", "db_function": "loans.loans_supervisor"}'),
    ):
        other_task = value(loans, "select queues.enqueue(%s, %s)", [type_name, payload])
        with refused(loans, "QF400", "does not run loans.supervise"):
            loans.execute("select queues.note_supervision('loans', 1, %s)", [other_task])
    loans.execute("select queues.note_supervision('loans', 1, %s)", [task])


def test_digests_are_recorded_by_the_owner_only(loans: Connection) -> None:
    _register(loans, "loans_owner")
    with _as(loans, "loans_owner"):
        loans.execute("""select queues.record_process_files('loans', '{"1_tables.sql": "ab"}')""")
    assert value(loans, "select files from queues.registered_process where process = 'loans'") == {
        "1_tables.sql": "ab"
    }
    with refused(loans, "QF403", "thief may not"):
        loans.execute("set local role thief")
        loans.execute("select queues.record_process_files('loans', '{}')")


def _kickoff(
    tx: Connection, arguments: str = "input jsonb, later integer default 1", returns: str = "bigint"
) -> None:
    with _as(tx, "loans_owner"):
        tx.execute(
            f"""create function loans.kickoff_loans_task({arguments}) returns {returns}
                language sql {PINNED} as 'select 1::{returns}'""".encode()
        )
        _grant(tx)


def test_a_kickoff_takes_one_document_and_returns_an_id(loans: Connection) -> None:
    _kickoff(loans)
    _register(loans, "loans_owner", kickoff="loans.kickoff_loans_task")
    assert value(loans, "select queues.start_process('loans', '{}')") == 1
    _register(loans, "loans_owner")
    with refused(loans, "QF412", "loans has no kickoff that takes one document"):
        loans.execute("select queues.start_process('loans', '{}')")


@pytest.mark.parametrize(
    ("arguments", "returns"),
    [("input jsonb, needed integer", "bigint"), ("input text", "bigint"), ("input jsonb", "text")],
)
def test_another_kickoff_is_refused(loans: Connection, arguments: str, returns: str) -> None:
    _kickoff(loans, arguments, returns)
    with refused(loans, "QF400", "may register as its kickoff"):
        _register(loans, "loans_owner", kickoff="loans.kickoff_loans_task")


@pytest.mark.parametrize(
    "change",
    [
        "alter function {} security invoker",
        "revoke execute on function {} from holdfast_caller",
        "revoke usage on schema loans from holdfast_caller",
    ],
)
@pytest.mark.parametrize(
    ("function", "call"),
    [
        ("loans.loans_history(bigint)", "select queues.process_history('loans', 1)"),
        ("loans.cancel_loans_task(bigint, text)", "select queues.cancel_process('loans', 1)"),
    ],
)
def test_a_function_that_breaks_the_rules_since_is_not_called(
    loans: Connection, function: str, call: str, change: str
) -> None:
    _register(loans, "loans_owner")
    loans.execute(call.encode())
    loans.execute(change.format(function).encode())
    told = "was dropped or changed since it was registered, or is not granted to holdfast_caller"
    with refused(loans, "QF412", told):
        loans.execute(call.encode())
    with refused(loans, "QF404", "there is no process nowhere"):
        loans.execute(call.replace("'loans'", "'nowhere'").encode())


@pytest.mark.parametrize(
    "default",
    [
        "timestamptz default now()",
        "text default current_user",
        "text default set_config('role', 'none', false)",
        "integer default 1 + 1",
        "text[] default array['a']",
        "loans.word default 'a'",
    ],
)
def test_a_default_that_is_evaluated_as_the_caller_is_refused(loans: Connection, default: str) -> None:
    loans.execute("create domain loans.word as text check (value <> current_user)")
    _kickoff(loans, f"input jsonb, further {default}")
    with refused(loans, "QF400", "may register as its kickoff"):
        _register(loans, "loans_owner", kickoff="loans.kickoff_loans_task")


def test_constants_may_be_defaults(loans: Connection) -> None:
    _kickoff(
        loans,
        """input jsonb, a timestamptz default null, b timestamptz default null::timestamptz,
           c integer default -3, d text default 'a {FUNCEXPR b}', e text[] default '{a,b}',
           f boolean default true, g interval default interval '1 day', h bigint default '5',
           i jsonb default '{"A": {"B": 1}}', j text default 'x'::text""",
    )
    _register(loans, "loans_owner", kickoff="loans.kickoff_loans_task")
    assert value(loans, "select queues.start_process('loans', '{}')") == 1


def test_a_default_that_was_changed_since_is_refused(loans: Connection) -> None:
    _kickoff(loans)
    _register(loans, "loans_owner", kickoff="loans.kickoff_loans_task")
    with _as(loans, "loans_owner"):
        loans.execute(
            f"""create or replace function loans.kickoff_loans_task(
                  input jsonb, later integer default pg_backend_pid()) returns bigint
                language sql {PINNED} as 'select 1::bigint'""".encode()
        )
    with refused(loans, "QF412", "the kickoff loans.kickoff_loans_task(jsonb) was dropped or changed"):
        loans.execute("select queues.start_process('loans', '{}')")


@pytest.mark.parametrize(
    "returns",
    [
        "setof loans.fact",
        "table (what text, reason text, task_id uuid)",
        "table (at timestamptz, what text, reason text, task uuid)",
        "table (at text, what text, reason text, task_id uuid)",
        "table (at timestamptz, what text, reason text, task_id uuid, more text)",
        "setof record",
    ],
)
def test_a_history_without_the_columns_is_refused(loans: Connection, returns: str) -> None:
    """PostgreSQL would take a column that is missing for a call of a function of that name."""
    loans.execute("create type loans.fact as (at timestamptz, what text, reason text, task_id uuid)")
    with _as(loans, "loans_owner"):
        loans.execute("drop function loans.loans_history(bigint)")
        loans.execute(
            f"""create function loans.loans_history(loans_task_id bigint) returns {returns}
                language plpgsql {PINNED} as 'begin return; end'""".encode()
        )
        _grant(loans)
    with refused(loans, "QF400", "may register as its history"):
        _register(loans, "loans_owner")


def test_a_cancel_that_returns_no_text_is_refused(loans: Connection) -> None:
    with _as(loans, "loans_owner"):
        loans.execute("drop function loans.cancel_loans_task(bigint, text)")
        loans.execute(
            f"""create function loans.cancel_loans_task(loans_task_id bigint, reason text) returns void
                language sql {PINNED} as ''""".encode()
        )
        _grant(loans)
    with refused(loans, "QF400", "may register as its cancel"):
        _register(loans, "loans_owner")


@pytest.mark.parametrize("more", [".x; drop", ".x", " ", "; drop", "\n"])
@pytest.mark.parametrize("use", FUNCTIONS)
def test_a_name_has_two_parts_and_nothing_more(loans: Connection, use: str, more: str) -> None:
    with refused(loans, "QF400", f"may register as its {use}"):
        _register(loans, "loans_owner", **{use: FUNCTIONS[use] + more})


def test_only_the_function_that_is_used_is_checked(loans: Connection) -> None:
    _kickoff(loans)
    _register(loans, "loans_owner", kickoff="loans.kickoff_loans_task")
    can_start = "select can_start from queues.list_processes() where process = 'loans'"
    assert value(loans, can_start) is True
    loans.execute("drop function loans.kickoff_loans_task")

    assert len(rows(loans, "select * from queues.process_history('loans', 1)")) == 1
    assert value(loans, "select queues.cancel_process('loans', 1, 'why')") == "why"
    with refused(loans, "QF412", "the kickoff loans.kickoff_loans_task(jsonb) was dropped or changed"):
        loans.execute("select queues.start_process('loans', '{}')")
    assert value(loans, can_start) is False


def test_instances_of_one_process_are_paged_by_their_ids(loans: Connection) -> None:
    """Of two kickoffs at once, the one that takes the lower id may be recorded later."""
    _register(loans, "loans_owner")
    loans.execute(
        """insert into queues.process_instance (process, process_id, created_at, created_by, namespace,
             updated_at, decision, ended_at)
           select 'loans', n, queues.clock() - make_interval(secs => n * 7 % 5), 'test', 'test',
             queues.clock(), 'succeeded', queues.clock()
           from generate_series(1, 12) n"""
    )
    seen: list[int] = []
    while page := rows(
        loans,
        "select process_id from queues.list_process_instances('loans', before => %s, max_instances => 2)",
        [seen[-1] if seen else None],
    ):
        seen += [row["process_id"] for row in page]
    assert seen == list(range(12, 0, -1))
    newest = rows(loans, "select created_at from queues.list_process_instances()")
    assert newest == sorted(newest, key=lambda row: row["created_at"], reverse=True)
