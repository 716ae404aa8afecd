"""The owner of a process who wants the rights of those who look at it, start it and cancel it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from support.database import Database
from support.engine import Connection, value

PINNED = "set search_path = pg_catalog, pg_temp"
FUNCTIONS = {
    "heist_supervisor": ("(payload jsonb)", "jsonb", "return '{\"success\": true}';"),
    "repair_heist": ("(payload jsonb)", "jsonb", "return '{\"success\": true}';"),
    "cancel_heist_task": ("(heist_task_id bigint, reason text)", "text", "return 'cancelled';"),
    "kickoff_heist_task": ("(input jsonb, later integer default 1)", "bigint", "return 1;"),
    "heist_history": (
        "(heist_task_id bigint)",
        "table (at timestamptz, what text, reason text, task_id uuid)",
        "return query select pg_catalog.now(), 'kicked off', null::text, null::uuid;",
    ),
}
# Sequences keep their values when a call is undone, so what has happened can be counted.
STEAL = """
  if current_user = 'holdfast_caller' then
    perform nextval('heist.without_rights');
  elsif current_user <> 'heist_owner' then
    perform nextval('heist.stolen');
  end if;
  begin
    perform set_config('role', session_user, false);
    perform nextval('heist.stolen');
  exception when others then null;
  end;
  -- What the engine lets its caller do, and not its owner.
  foreach _act in array array[
    'select from queues.task_status s where s.task_id = $1',
    'select where queues.may_read_all() or queues.has_role(''worker'') or queues.has_role(''operator'')',
    'select queues.cancel($1)', 'select queues.signal($1, ''go'')',
    'select queues.reschedule($1, pg_catalog.now())']
  loop
    begin
      execute _act using (select v.task_id from heist.victim v);
      get diagnostics _done = row_count;
      if _done > 0 then
        perform nextval('heist.stolen');
      end if;
    exception when others then null;
    end;
  end loop;
  if current_user <> 'heist_owner' then
    begin
      perform queues.create_token('heist', array['admin'], sha256('x'));
      perform nextval('heist.stolen');
    exception when others then null;
    end;
    begin
      create role heist_gain;
      perform nextval('heist.stolen');
    exception when others then null;
    end;
  end if;
"""


class Thief:
    """A process `heist`, whose functions count with which rights they run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.admin = database.connect()
        if not value(self.admin, "select exists (select from pg_roles where rolname = 'heist_owner')"):
            self.admin.execute("create role heist_owner in role holdfast_process")
        self.admin.execute("create schema heist authorization heist_owner")
        own = self.connect()
        own.execute("create table heist.heist_task (heist_task_id bigint primary key)")
        own.execute("create table heist.victim (task_id uuid)")
        with self._database.connect("holdfast_client") as other:
            victim = value(other, """select queues.enqueue('bank.pay', '{"card": "4111"}')""")
        own.execute("insert into heist.victim values (%s)", [victim])
        own.execute("create sequence heist.stolen")
        own.execute("create sequence heist.without_rights")
        own.execute("grant usage on schema heist to public")
        own.execute("grant usage on sequence heist.stolen, heist.without_rights to public")
        for name in FUNCTIONS:
            self.replace(own, name, STEAL)
        own.execute("revoke execute on all functions in schema heist from public")
        own.execute("grant execute on all functions in schema heist to holdfast_caller")
        own.execute(
            """select queues.register_process('heist', root_table => 'heist_task',
                 supervisor => 'heist.heist_supervisor', repair => 'heist.repair_heist',
                 cancel => 'heist.cancel_heist_task', history => 'heist.heist_history',
                 kickoff => 'heist.kickoff_heist_task')"""
        )

    def connect(self) -> Connection:
        connection = self._database.connect()
        connection.execute("set role heist_owner")
        return connection

    def replace(self, own: Connection, name: str, body: str, how: str = "definer") -> None:
        arguments, returns, end = FUNCTIONS[name]
        own.execute(
            f"""create or replace function heist.{name}{arguments} returns {returns} language plpgsql
                security {how} {PINNED} as $body$
                declare _act text; _done integer; begin {body} {end} end $body$""".encode()
        )

    @property
    def stolen(self) -> int:
        """How often its code had rights that are not its own."""
        return self._count("stolen")

    @property
    def without_rights(self) -> int:
        """How often its code ran as the caller of the functions, which has no rights."""
        return self._count("without_rights")

    def _count(self, name: str) -> int:
        counted = f"select case when is_called then last_value else 0 end from heist.{name}"
        return int(value(self.admin, counted))

    @contextmanager
    def toggling(self) -> Iterator[None]:
        """Meanwhile, it replaces its functions without a pause."""
        ended = threading.Event()
        threads = [threading.Thread(target=self._toggle, args=(name, ended)) for name in FUNCTIONS]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join()

    def _toggle(self, name: str, ended: threading.Event) -> None:
        own: psycopg.Connection[Any] = self.connect()
        while not ended.is_set():
            for how in ("invoker", "definer"):
                self.replace(own, name, STEAL, how)
