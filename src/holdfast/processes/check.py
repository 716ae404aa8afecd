"""The rules of a business process, proved against a live database."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from holdfast.errors import TaskNotFound, translate
from holdfast.processes.catalog import look_up
from holdfast.processes.rules import Finding, Process, Schema

# Registered ones, and those that look like one: x.shipping_supervisor belongs to x.shipping_task.
_FIND = """
  select coalesce(r.schema_name, n.nspname::text) as schema, coalesce(
      regexp_replace(r.root_table, '_task$', ''), regexp_replace(p.proname, '_supervisor$', '')) as stem,
    coalesce(r.kind, 'attempts') as kind, r.process is not null as registered
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  full join queues.registered_process r on r.supervisor = n.nspname || '.' || p.proname
  where r.process is not null
    or p.proname ~ '._supervisor$' and p.pronargs = 1 and p.proargtypes[0] = 'pg_catalog.jsonb'::regtype
      and n.nspname !~ '^pg_' and p.proname !~ '^waiting_'
  order by 1, 2"""


def find_processes(connection: psycopg.Connection[Any], name: str | None) -> list[Process]:
    """All of them, those of a schema, or the one of a name such as comms.send_email."""
    found = [Process(**row) for row in look_up(connection, _FIND)]
    if name is None:
        return found
    wanted = [one for one in found if name in (one.schema, f"{one.schema}.{one.stem}", str(one))]
    if not wanted:
        known = ", ".join(str(one) for one in found) or "none"
        raise TaskNotFound(f"there is no process {name}", hint=f"Known are: {known}.")
    return wanted


def check_process(connection: psycopg.Connection[Any], process: Process) -> list[Finding]:
    """What breaks a rule. Changes nothing; `connection` commits each statement by itself."""
    schema = Schema(connection, process)
    found = list(schema.findings())
    return found + [
        finding
        for row in schema.handlers
        if row["takes_jsonb"]
        for finding in _check_envelope(connection, process, row["name"], found)
    ]


def _check_envelope(
    connection: psycopg.Connection[Any], process: Process, name: str, found: list[Finding]
) -> Iterator[Finding]:
    """Called with a payload that is about nothing, as a worker, in a transaction that is rolled back."""
    full = f"{process.schema}.{name}"
    if any(finding.object.startswith(f"{full}(") for finding in found):
        return  # the runner would refuse it, and why is told already
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("set local role holdfast_worker")
            query = "select internal.run_function(%s, '{}')"
            row = connection.execute(query.encode(), [full]).fetchone()
        answer = row[0] if row else None
    except psycopg.Error as error:
        answer = f"{translate(error)}"
    fine = (
        isinstance(answer, dict)
        and answer.get("success") is False
        and answer.get("validation_failure_message")
    )
    if not fine:
        fix = f"it answered {json.dumps(answer)[:200]} to an empty payload; a validation failure is expected"
        yield Finding(str(process), full, "every answer is an envelope", fix)
