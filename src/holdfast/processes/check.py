"""Checks business processes against their rules in a live database."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg

from holdfast.errors import TaskNotFound, did_you_mean, translate
from holdfast.processes.catalog import query_catalog
from holdfast.processes.rules import Finding, ProcessDefinition, ProcessRules

# Registered processes, and what looks like one: x.shipping_supervisor belongs to x.shipping_task.
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


def find_processes(connection: psycopg.Connection[Any], name: str | None) -> list[ProcessDefinition]:
    """All processes, those of a schema, or the one with a name such as comms.send_email."""
    found = [ProcessDefinition(**row) for row in query_catalog(connection, _FIND)]
    if name is None:
        return found
    wanted = [one for one in found if name in (one.schema, f"{one.schema}.{one.stem}", str(one))]
    if not wanted:
        raise TaskNotFound(f"there is no process {name!r}{did_you_mean(name, map(str, found))}")
    return wanted


def check_process(connection: psycopg.Connection[Any], process: ProcessDefinition) -> list[Finding]:
    """Return the violations. Changes nothing. `connection` must be in autocommit mode."""
    rules = ProcessRules(connection, process)
    found = list(rules.findings())
    return found + [
        finding
        for row in rules.handlers
        if row["takes_jsonb"]
        for finding in _check_envelope(connection, process, row["name"], found)
    ]


def _check_envelope(
    connection: psycopg.Connection[Any], process: ProcessDefinition, name: str, found: list[Finding]
) -> Iterator[Finding]:
    """Call a handler with an empty payload, as a worker does, and roll back."""
    full = f"{process.schema}.{name}"
    if any(finding.object.startswith(f"{full}(") for finding in found):
        return  # the runner would refuse to call it; the finding already says why
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("set local role holdfast_worker")
            query = "select internal.run_function(%s, '{}')"
            row = connection.execute(query.encode(), [full]).fetchone()
        envelope = row[0] if row else None
    except psycopg.Error as error:
        envelope = f"{translate(error)}"
    valid = (
        isinstance(envelope, dict)
        and envelope.get("success") is False
        and envelope.get("validation_failure_message")
    )
    if not valid:
        fix = f"return a validation failure for an empty payload; it returned {json.dumps(envelope)[:200]}"
        yield Finding(str(process), full, "handlers return an envelope", fix)
