"""The rules of a business process, proved against a live database.

A process is found by its supervisor: `shipping.shipping_supervisor` belongs to the root table
`shipping.shipping_task`, and so does everything else that is named after it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from holdfast.errors import TaskNotFound, translate

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Process:
    """Everything of it is named after these two."""

    schema: str
    stem: str

    def __str__(self) -> str:
        return self.schema if self.schema == self.stem else f"{self.schema}.{self.stem}"

    @property
    def root(self) -> str:
        return f"{self.stem}_task"

    @property
    def supervisor(self) -> str:
        return f"{self.schema}.{self.stem}_supervisor"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that something breaks, and what to do about it."""

    process: str
    object: str
    rule: str
    fix: str


_FIND = """
  select n.nspname::text as schema, regexp_replace(p.proname, '_supervisor$', '') as stem
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where p.proname ~ '._supervisor$' and p.pronargs = 1 and p.proargtypes[0] = 'pg_catalog.jsonb'::regtype
    and n.nspname !~ '^pg_' and p.proname !~ '^waiting_'
  order by 1, 2"""

_FUNCTIONS = """
  select p.proname::text as name, p.oid, p.oid::regprocedure::text as signature, p.prosecdef as definer,
    p.pronargs = 1 and p.proargtypes[0] = 'pg_catalog.jsonb'::regtype
      and p.prorettype = 'pg_catalog.jsonb'::regtype as called_by_workers,
    coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false) as pinned,
    pg_catalog.has_function_privilege('public', p.oid, 'execute') as everybodys,
    pg_catalog.has_function_privilege('holdfast_worker', p.oid, 'execute') as granted,
    pg_catalog.pg_has_role(p.proowner, 'holdfast_process', 'member')
      or p.proowner = 'holdfast_owner'::regrole as has_authority,
    (select r.rolsuper from pg_catalog.pg_roles r where r.oid = p.proowner) as superuser,
    pg_catalog.pg_get_userbyid(p.proowner)::text as owner,
    (select count(*) from pg_catalog.pg_proc o
     where o.pronamespace = p.pronamespace and o.proname = p.proname) as of_that_name
  from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname = %s and p.prokind = 'f' order by p.proname"""

_TABLES = """
  select c.relname::text as name,
    exists (select from pg_catalog.pg_trigger t where t.tgrelid = c.oid and t.tgenabled = 'A'
      and t.tgfoid = 'queues.refuse_change'::regproc and (t.tgtype & 59) = 58) as append_only,
    array(
      select array_agg(a.attname::text order by a.attname)::text
      from pg_catalog.pg_index i
      join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
      where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null
      group by i.indexrelid) as keys,
    exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisunique
      and i.indpred is not null and i.indnkeyatts = 1) as one_end,
    array(
      select distinct case a.grantee when 0 then 'PUBLIC' else a.grantee::regrole::text end
      from pg_catalog.aclexplode(c.relacl) a where a.grantee <> c.relowner) as others
  from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = %s and c.relkind in ('r', 'p')"""


def find_processes(connection: psycopg.Connection[Any], name: str | None) -> list[Process]:
    """All of them, those of a schema, or the one of a name such as comms.send_email."""
    found = [Process(row["schema"], row["stem"]) for row in _rows(connection, _FIND)]
    if name is None:
        return found
    wanted = [one for one in found if name in (one.schema, f"{one.schema}.{one.stem}", str(one))]
    if not wanted:
        known = ", ".join(str(one) for one in found) or "none"
        raise TaskNotFound(f"there is no process {name}", hint=f"Known are: {known}.")
    return wanted


def check_process(connection: psycopg.Connection[Any], process: Process) -> list[Finding]:
    """What breaks a rule. Changes nothing; `connection` commits each statement by itself."""
    functions = _rows(connection, _FUNCTIONS, process.schema)
    tables = {row["name"]: row for row in _rows(connection, _TABLES, process.schema)}
    found = [
        *_check_tables(process, tables),
        *_check_functions(process, functions),
        *_check_usage(connection, process),
    ]
    called = [row["name"] for row in functions if _is_called(process, row) and row["called_by_workers"]]
    return found + [
        finding for name in called for finding in _check_envelope(connection, process, name, found)
    ]


def _check_tables(process: Process, tables: dict[str, Row]) -> Iterator[Finding]:
    key = f"{process.root}_id"
    expected = {
        "": [key],
        "_scheduled": [key, "attempt"],
        "_failed": [key, "attempt"],
        "_succeeded": [key],
        "_supervised": [key, "run"],
    }
    for suffix, columns in expected.items():
        name = f"{process.schema}.{process.root}{suffix}"
        row = tables.get(f"{process.root}{suffix}")
        if row is None:
            yield _finding(process, name, "a process has a root and facts", "create the table")
            continue
        wanted = "{" + ",".join(sorted(columns)) + "}"
        if wanted not in row["keys"]:
            fix = f"alter table {name} add unique ({', '.join(columns)})"
            yield _finding(process, name, "each logical event happens at most once", fix)
        if suffix == "_supervised" and not row["one_end"]:
            fix = f"create unique index on {name} ({key}) where next_task_id is null"
            yield _finding(process, name, "a process ends once", fix)
    for table, row in tables.items():
        if not table.startswith(process.root):
            continue
        name = f"{process.schema}.{table}"
        if not row["append_only"]:
            fix = (
                f"create trigger append_only before update or delete or truncate on {name} "
                "for each statement execute function queues.refuse_change(); "
                f"alter table {name} enable always trigger append_only"
            )
            yield _finding(process, name, "facts are append-only, also for the owner", fix)
        for other in row["others"]:
            yield _finding(process, name, "nobody touches tables", f"revoke all on {name} from {other}")


def _check_functions(process: Process, functions: list[Row]) -> Iterator[Finding]:
    named = {row["name"]: row for row in functions}
    for name in _expected(process):
        if name not in named:
            full = f"{process.schema}.{name}"
            yield _finding(
                process, full, "a process has facts, handlers and a kickoff", "create the function"
            )
    for row in functions:
        if _is_called(process, row):
            yield from _check_called(process, row)
        elif row["name"] == f"kickoff_{process.root}":
            yield from _check_rights(process, row)


def _check_rights(process: Process, row: Row) -> Iterator[Finding]:
    signature = row["signature"]
    if not row["definer"]:
        fix = f"alter function {signature} security definer"
        yield _finding(process, signature, "business functions are security definer", fix)
    if not row["pinned"]:
        fix = f"alter function {signature} set search_path = pg_catalog, pg_temp"
        yield _finding(process, signature, "the path of business functions is pinned", fix)
    if row["everybodys"]:
        fix = f"revoke execute on function {signature} from public"
        yield _finding(process, signature, "PUBLIC may execute nothing", fix)
    if not row["has_authority"] or row["superuser"]:
        fix = f"grant holdfast_process to {row['owner']}, which should not be a superuser"
        yield _finding(process, signature, "owners are members of holdfast_process", fix)
    if row["of_that_name"] > 1:
        yield _finding(process, signature, "one function has one name", "drop or rename the other")


def _check_called(process: Process, row: Row) -> Iterator[Finding]:
    yield from _check_rights(process, row)
    signature = row["signature"]
    if not row["called_by_workers"]:
        fix = "let it take one jsonb and return jsonb"
        yield _finding(process, signature, "functions that a worker calls take and return jsonb", fix)
    if not row["granted"]:
        fix = f"grant execute on function {signature} to holdfast_worker"
        yield _finding(process, signature, "functions that a worker calls are granted one by one", fix)


def _check_usage(connection: psycopg.Connection[Any], process: Process) -> Iterator[Finding]:
    (row,) = _rows(
        connection,
        "select pg_catalog.has_schema_privilege('holdfast_worker', %s, 'usage') as usage",
        process.schema,
    )
    if not row["usage"]:
        fix = f"grant usage on schema {process.schema} to holdfast_worker"
        yield _finding(process, process.schema, "workers may use the schema", fix)


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
        yield _finding(process, full, "every answer is an envelope", fix)


def _expected(process: Process) -> list[str]:
    root = process.root
    return [
        f"{process.stem}_supervisor",
        f"has_{root}_succeeded",
        f"count_{root}_failures",
        f"count_{root}_scheduled",
        f"kickoff_{root}",
    ]


def _is_called(process: Process, row: Row) -> bool:
    """By a worker: the supervisor and the handlers, which have the subject of the process in their names."""
    subject = process.stem.removeprefix("send_")
    name = row["name"]
    handlers = {f"get_{subject}_payload", f"record_{subject}_success", f"record_{subject}_failure"}
    return name == f"{process.stem}_supervisor" or name in handlers


def _finding(process: Process, what: str, rule: str, fix: str) -> Finding:
    return Finding(str(process), what, rule, fix)


def _rows(connection: psycopg.Connection[Any], query: str, *parameters: Any) -> list[Row]:
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query.encode(), parameters).fetchall()
    except psycopg.Error as error:
        raise translate(error) from error
