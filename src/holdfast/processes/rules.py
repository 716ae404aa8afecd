"""The rules of business processes. Each check yields the violations that it finds in the catalog."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg

from holdfast._engine.catalog import (
    FUNCTIONS,
    INDEXES,
    PRIVILEGES,
    TABLES,
    TRIGGERS,
    CatalogRow,
    query_catalog,
)

_CALLER = "holdfast_caller"
_ONE_END = "(next_task_id IS NULL)"
_TRIGGER = (
    "create trigger append_only before update or delete or truncate on {name} for each statement "
    "execute function queues.refuse_change(); alter table {name} enable always trigger append_only"
)


@dataclass(frozen=True, slots=True)
class ProcessDefinition:
    """A process. The names of its functions derive from `stem`, those of its tables from `root`."""

    schema: str
    stem: str
    root: str
    kind: str = "attempts"
    registered: bool = True

    def __str__(self) -> str:
        return self.schema if self.schema == self.stem else f"{self.schema}.{self.stem}"

    @property
    def task(self) -> str:
        """What functions, payloads and messages call an instance: send_email_task."""
        return f"{self.stem}_task"

    @property
    def is_python(self) -> bool:
        """True if the supervisor is a Python task, and not a function."""
        return self.kind == "python"

    @property
    def supervisor(self) -> str:
        return f"{self.schema}.{self.stem}_supervisor"

    @property
    def shares_schema(self) -> bool:
        """True for the processes in `comms`, a schema that contains more than one process."""
        return self.schema != self.stem

    @property
    def tables(self) -> dict[str, list[str]]:
        """The required tables (root and facts), each with the columns of its unique key."""
        key = f"{self.root}_id"
        attempts = {"_scheduled": "attempt", "_failed": "attempt", "_succeeded": None}
        facts = {"_reminded": "reminder", "_decided": None} if self.kind == "decision" else attempts
        number: dict[str, str | None] = {"": None, **facts, "_supervised": "run"}
        return {f"{self.root}{suffix}": [key, *([more] if more else [])] for suffix, more in number.items()}

    @property
    def functions(self) -> list[str]:
        """The required functions."""
        task = self.task
        if self.kind == "decision":
            return [*self.recording, f"decide_{task}"]
        facts = [f"has_{task}_succeeded", f"count_{task}_failures", f"count_{task}_scheduled"]
        if self.is_python:
            facts.append(f"read_{self.stem}_facts")
        return [*self.recording, *facts]

    @property
    def recording(self) -> list[str]:
        """The required functions that record which task runs the supervisor next, or the end."""
        return [*self.called, f"kickoff_{self.task}", f"cancel_{self.task}"]

    @property
    def called(self) -> list[str]:
        """Those that workers call: the supervisor, or what one in Python calls to record, and repair."""
        decides = f"record_{self.stem}_decision" if self.is_python else f"{self.stem}_supervisor"
        return [decides, f"repair_{self.stem}"]

    @property
    def called_by_people(self) -> list[str]:
        """Those that the command line and the dashboard call. Messages are begun by applications only."""
        begin = [] if self.shares_schema else [f"kickoff_{self.task}"]
        return [*begin, f"cancel_{self.task}", f"{self.stem}_history"]


@dataclass(frozen=True, slots=True)
class Finding:
    """An object that violates a rule, and how to fix it."""

    process: str
    object: str
    rule: str
    fix: str


class ProcessRules:
    """The rules, applied to one process and its schema."""

    def __init__(self, connection: psycopg.Connection[Any], process: ProcessDefinition) -> None:
        self.process = process
        self._connection = connection

    def findings(self) -> Iterator[Finding]:
        if not self.process.registered:
            fix = "call queues.register_process as its owner, as in the generated 6_grants.sql"
            yield self._finding(
                str(self.process), "processes are registered so that they can be repaired", fix
            )
        yield from self._check_tables()
        yield from self._check_keys()
        yield from self._check_functions()
        yield from self._check_privileges()

    @cached_property
    def handlers(self) -> list[CatalogRow]:
        """The functions that workers call: supervisor, repair and handlers of attempts."""
        subject = self.process.stem.removeprefix("send_")
        return [
            row
            for row in self._functions
            if (row["takes_jsonb"] or row["name"] in self.process.called) and row["definer"]
            if not self.process.shares_schema or subject in row["name"].split("_")
        ]

    @cached_property
    def _functions(self) -> list[CatalogRow]:
        return self._query(FUNCTIONS)

    @cached_property
    def _relations(self) -> list[CatalogRow]:
        return self._query(TABLES)

    @cached_property
    def _tables(self) -> list[CatalogRow]:
        found = [row for row in self._relations if row["kind"] in ("r", "p", "f")]
        if self.process.shares_schema:
            return [row for row in found if row["name"].startswith(self.process.root)]
        return found

    def _query(self, query: str) -> list[CatalogRow]:
        return query_catalog(self._connection, query, self.process.schema)

    def _finding(self, what: str, rule: str, fix: str) -> Finding:
        return Finding(str(self.process), what, rule, fix)

    def _qualified(self, name: str) -> str:
        return f"{self.process.schema}.{name}"

    def _check_tables(self) -> Iterator[Finding]:
        existing = {row["name"] for row in self._tables}
        for name in self.process.tables:
            if name not in existing:
                yield self._finding(
                    self._qualified(name), "a process has a root table and its facts", "create the table"
                )
        triggers = self._query(TRIGGERS)
        for row in self._tables:
            name = self._qualified(row["name"])
            own = [trigger for trigger in triggers if trigger["table"] == row["name"]]
            if not any(trigger["append_only"] for trigger in own):
                rule = "facts are append-only, even for the owner; other tables belong in another schema"
                yield self._finding(name, rule, _TRIGGER.format(name=name))
            yield from self._check_triggers(name, own)
            if row["kind"] == "f" or not row["logged"]:
                fix = (
                    f"alter table {name} set logged"
                    if row["kind"] != "f"
                    else "replace it with a local table"
                )
                yield self._finding(name, "facts survive a crash", fix)
            if row["has_rules"]:
                yield self._finding(
                    name, "tables of facts have no rewrite rules", f"drop the rules on {name}"
                )
            if not row["of_the_owner"]:
                yield self._wrong_owner("table", name, row["owner"])

    def _check_triggers(self, name: str, triggers: list[CatalogRow]) -> Iterator[Finding]:
        for row in triggers:
            if row["internal"] and row["disabled"]:
                yield self._finding(
                    name, "foreign keys are enforced", f"alter table {name} enable trigger all"
                )
            elif not row["internal"] and not row["append_only"]:
                fix = f"drop trigger {row['name']} on {name}"
                yield self._finding(
                    name, f"facts have no trigger except append_only, but there is {row['name']}", fix
                )

    def _check_keys(self) -> Iterator[Finding]:
        indexes = self._query(INDEXES)
        existing = {row["name"] for row in self._tables}
        for table, columns in self.process.tables.items():
            if table not in existing:
                continue
            name = self._qualified(table)
            keys = [row["columns"] for row in indexes if row["table"] == table and row["condition"] is None]
            if sorted(columns) not in keys:
                fix = f"alter table {name} add unique ({', '.join(columns)})"
                yield self._finding(name, "each logical event is recorded at most once", fix)
            ends = [
                row["columns"] for row in indexes if row["table"] == table and row["condition"] == _ONE_END
            ]
            if table == f"{self.process.root}_supervised" and [columns[0]] not in ends:
                fix = f"create unique index on {name} ({columns[0]}) where next_task_id is null"
                yield self._finding(name, "a process ends at most once", fix)

    def _check_functions(self) -> Iterator[Finding]:
        named = {row["name"]: row for row in self._functions}
        for name in self.process.functions:
            if name not in named:
                rule = "a process has its required functions"
                yield self._finding(self._qualified(name), rule, "create the function")
        recording = self.process.recording
        for row in self._functions:
            signature = row["signature"]
            if row["name"] in recording and not row["definer"]:
                fix = f"alter function {signature} security definer"
                yield self._finding(signature, "business functions are security definer", fix)
            if row["name"] in recording and not self._records_runs(row):
                fix = "call queues.note_supervision in it, as in the generated functions"
                yield self._finding(signature, "each run is recorded so that lost supervisors are found", fix)
            if row["definer"]:
                yield from self._check_definer(row)
            if not row["of_the_owner"]:
                yield self._wrong_owner("function", signature, row["owner"])

    def _records_runs(self, row: CatalogRow) -> bool:
        """True if the function, or another function of the schema that it calls, records the run."""
        called = re.findall(rf"\b{self.process.schema}\.(\w+)\(", row["body"])
        bodies = [row["body"], *(one["body"] for one in self._functions if one["name"] in called)]
        return any("queues.note_supervision" in body for body in bodies)

    def _check_definer(self, row: CatalogRow) -> Iterator[Finding]:
        signature = row["signature"]
        if not row["pinned"]:
            fix = f"alter function {signature} set search_path = pg_catalog, pg_temp"
            yield self._finding(signature, "security definer functions set their search_path", fix)
        if not row["has_authority"] or row["superuser"]:
            fix = f"grant holdfast_process to {row['owner']}, which must not be a superuser"
            yield self._finding(signature, "owners of functions are members of holdfast_process", fix)
        if row["of_that_name"] > 1:
            yield self._finding(signature, "functions are not overloaded", "drop or rename the other")

    def _wrong_owner(self, kind: str, name: str, owner: str) -> Finding:
        fix = f"alter {kind} {name} owner to the owner of the schema {self.process.schema}"
        return self._finding(
            name, f"all objects belong to the owner of the schema, but this one to {owner}", fix
        )

    def _check_privileges(self) -> Iterator[Finding]:
        privileges = self._query(PRIVILEGES)
        for row in privileges:
            yield from self._check_privilege(row)
        if not any(
            row["kind"] == "schema" and (row["grantee"], row["privilege"]) == (_CALLER, "usage")
            for row in privileges
        ):
            fix = f"grant usage on schema {self.process.schema} to {_CALLER}"
            yield self._finding(self.process.schema, "holdfast_caller may use the schema", fix)
        granted = {
            row["signature"] for row in privileges if (row["kind"], row["grantee"]) == ("function", _CALLER)
        }
        for row in self._functions:
            if row not in self.handlers and row["name"] not in self.process.called_by_people:
                continue
            if row["signature"] not in granted:
                fix = f"grant execute on function {row['signature']} to {_CALLER}"
                yield self._finding(
                    row["signature"], "functions that Holdfast calls are granted to holdfast_caller", fix
                )
            if row in self.handlers and not row["takes_jsonb"]:
                rule = "functions that workers call take and return jsonb"
                yield self._finding(row["signature"], rule, "change it to take one jsonb and return jsonb")

    def _check_privilege(self, row: CatalogRow) -> Iterator[Finding]:
        kind, name, grantee = row["kind"], row["signature"], row["grantee"]
        what = f"{row['privilege']} ({row['columns']})" if row["columns"] else row["privilege"]
        on = "" if kind in ("table", "column", "view") else f"{kind} "
        fix = f"revoke {'all' if kind in ('table', 'sequence') else what} on {on}{name} from {grantee}"
        if kind in ("table", "sequence", "column"):
            yield self._finding(name, "no role except the owner has privileges on tables", fix)
        elif kind == "schema" and (grantee == "PUBLIC" or row["privilege"] == "create"):
            yield self._finding(
                name, "only the owner may create objects in the schema, and PUBLIC may not use it", fix
            )
        elif kind == "view":
            yield from self._check_view(row, fix)
        elif kind == "function":
            yield from self._check_execute(row, fix)
        if row["grantable"]:
            yield self._finding(name, "no privilege has a grant option", f"revoke grant option for {fix[7:]}")

    def _check_view(self, row: CatalogRow, fix: str) -> Iterator[Finding]:
        if row["grantee"] in ("PUBLIC", _CALLER) or row["privilege"] != "select":
            yield self._finding(
                row["signature"], "views grant only select, and not to PUBLIC or holdfast_caller", fix
            )
        if not any(view["name"] == row["name"] and view["barrier"] for view in self._relations):
            fix = f"alter view {row['signature']} set (security_barrier)"
            yield self._finding(row["signature"], "granted views are security barriers", fix)

    def _check_execute(self, row: CatalogRow, fix: str) -> Iterator[Finding]:
        function = next(one for one in self._functions if one["signature"] == row["signature"])
        if row["grantee"] == "PUBLIC":
            yield self._finding(row["signature"], "PUBLIC may not execute functions", fix)
        elif row["grantee"] == _CALLER:
            if function["takes_jsonb"] and not function["definer"]:
                fix = f"alter function {row['signature']} security definer"
                yield self._finding(row["signature"], "functions that workers call are security definer", fix)
            elif not (
                self.process.shares_schema
                or function["takes_jsonb"]
                or function["name"] in self.process.called_by_people
            ):
                rule = "holdfast_caller may execute only what workers and the dashboard call"
                yield self._finding(row["signature"], rule, fix)
        elif function["takes_jsonb"] and function["definer"]:
            rule = "only holdfast_caller may execute supervisors and handlers"
            yield self._finding(row["signature"], rule, fix)
