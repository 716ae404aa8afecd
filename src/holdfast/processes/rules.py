"""The rules of a business process: each yields what breaks it, from what the catalog says."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg

from holdfast.processes.catalog import FUNCTIONS, INDEXES, RIGHTS, TABLES, TRIGGERS, Row, look_up

_WORKER = "holdfast_worker"
_ONE_END = "(next_task_id IS NULL)"
_TRIGGER = (
    "create trigger append_only before update or delete or truncate on {name} for each statement "
    "execute function queues.refuse_change(); alter table {name} enable always trigger append_only"
)


@dataclass(frozen=True, slots=True)
class Process:
    """Everything of it is named after the first two."""

    schema: str
    stem: str
    kind: str = "attempts"
    registered: bool = True

    def __str__(self) -> str:
        return self.schema if self.schema == self.stem else f"{self.schema}.{self.stem}"

    @property
    def root(self) -> str:
        return f"{self.stem}_task"

    @property
    def supervisor(self) -> str:
        return f"{self.schema}.{self.stem}_supervisor"

    @property
    def shares_schema(self) -> bool:
        """In `comms`, which is ours, not everything is part of a process."""
        return self.schema != self.stem

    @property
    def tables(self) -> dict[str, list[str]]:
        """The root and the facts that there must be, each with what is unique in it."""
        key = f"{self.root}_id"
        facts = {
            "attempts": {"_scheduled": "attempt", "_failed": "attempt", "_succeeded": None},
            "decision": {"_reminded": "reminder", "_decided": None},
        }[self.kind]
        number: dict[str, str | None] = {"": None, **facts, "_supervised": "run"}
        return {f"{self.root}{suffix}": [key, *([more] if more else [])] for suffix, more in number.items()}

    @property
    def functions(self) -> list[str]:
        """What must be there."""
        root = self.root
        common = [f"{self.stem}_supervisor", f"repair_{self.stem}", f"kickoff_{root}", f"cancel_{root}"]
        if self.kind == "decision":
            return [*common, f"decide_{root}"]
        return [*common, f"has_{root}_succeeded", f"count_{root}_failures", f"count_{root}_scheduled"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that something breaks, and what to do about it."""

    process: str
    object: str
    rule: str
    fix: str


class Schema:
    """One process, and everything that is in its schema."""

    def __init__(self, connection: psycopg.Connection[Any], process: Process) -> None:
        self.process = process
        self._connection = connection

    def findings(self) -> Iterator[Finding]:
        if not self.process.registered:
            fix = "call queues.register_process as its owner, as the generated 6_grants.sql does"
            yield self._finding(str(self.process), "a process is registered, so that it is repaired", fix)
        yield from self._check_tables()
        yield from self._check_keys()
        yield from self._check_functions()
        yield from self._check_rights()

    @cached_property
    def handlers(self) -> list[Row]:
        """What workers call: the supervisor, the repair and the handlers of attempts."""
        subject = self.process.stem.removeprefix("send_")
        return [
            row
            for row in self._functions
            if (row["takes_jsonb"] or row["name"] in self.process.functions[:2]) and row["definer"]
            if not self.process.shares_schema or subject in row["name"].split("_")
        ]

    @cached_property
    def _functions(self) -> list[Row]:
        return self._look_up(FUNCTIONS)

    @cached_property
    def _relations(self) -> list[Row]:
        return self._look_up(TABLES)

    @cached_property
    def _tables(self) -> list[Row]:
        found = [row for row in self._relations if row["kind"] in ("r", "p", "f")]
        if self.process.shares_schema:
            return [row for row in found if row["name"].startswith(self.process.root)]
        return found

    def _look_up(self, query: str) -> list[Row]:
        return look_up(self._connection, query, self.process.schema)

    def _finding(self, what: str, rule: str, fix: str) -> Finding:
        return Finding(str(self.process), what, rule, fix)

    def _named(self, name: str) -> str:
        return f"{self.process.schema}.{name}"

    def _check_tables(self) -> Iterator[Finding]:
        there = {row["name"] for row in self._tables}
        for name in self.process.tables:
            if name not in there:
                yield self._finding(self._named(name), "a process has a root and facts", "create the table")
        triggers = self._look_up(TRIGGERS)
        for row in self._tables:
            name = self._named(row["name"])
            own = [trigger for trigger in triggers if trigger["table"] == row["name"]]
            if not any(trigger["append_only"] for trigger in own):
                rule = "facts are append-only, also for the owner; what is not a fact has a schema of its own"
                yield self._finding(name, rule, _TRIGGER.format(name=name))
            yield from self._check_triggers(name, own)
            if row["kind"] == "f" or not row["logged"]:
                fix = (
                    f"alter table {name} set logged"
                    if row["kind"] != "f"
                    else "create a table of this database"
                )
                yield self._finding(name, "facts outlive a crash", fix)
            if row["has_rules"]:
                yield self._finding(
                    name, "no rule rewrites what is done to a fact", f"drop the rules on {name}"
                )
            if not row["of_the_owner"]:
                yield self._strange_owner("table", name, row["owner"])

    def _check_triggers(self, name: str, triggers: list[Row]) -> Iterator[Finding]:
        for row in triggers:
            if row["internal"] and row["disabled"]:
                yield self._finding(
                    name, "foreign keys are checked", f"alter table {name} enable trigger all"
                )
            elif not row["internal"] and not row["append_only"]:
                fix = f"drop trigger {row['name']} on {name}"
                yield self._finding(
                    name, f"facts have no other trigger than that, and {row['name']} is another", fix
                )

    def _check_keys(self) -> Iterator[Finding]:
        indexes = self._look_up(INDEXES)
        there = {row["name"] for row in self._tables}
        for table, columns in self.process.tables.items():
            if table not in there:
                continue
            name = self._named(table)
            keys = [row["columns"] for row in indexes if row["table"] == table and row["condition"] is None]
            if sorted(columns) not in keys:
                fix = f"alter table {name} add unique ({', '.join(columns)})"
                yield self._finding(name, "each logical event happens at most once", fix)
            ends = [
                row["columns"] for row in indexes if row["table"] == table and row["condition"] == _ONE_END
            ]
            if table == f"{self.process.root}_supervised" and [columns[0]] not in ends:
                fix = f"create unique index on {name} ({columns[0]}) where next_task_id is null"
                yield self._finding(name, "a process ends once", fix)

    def _check_functions(self) -> Iterator[Finding]:
        named = {row["name"]: row for row in self._functions}
        for name in self.process.functions:
            if name not in named:
                rule = "a process has facts, a supervisor, a kickoff, an end and a repair"
                yield self._finding(self._named(name), rule, "create the function")
        noting = self.process.functions[:4]
        for row in self._functions:
            signature = row["signature"]
            if row["name"] in self.process.functions[:4] and not row["definer"]:
                fix = f"alter function {signature} security definer"
                yield self._finding(signature, "business functions are security definer", fix)
            if row["name"] in noting and "queues.note_supervision" not in row["body"]:
                fix = "call queues.note_supervision in it, as the generated ones do"
                yield self._finding(signature, "each run is noted, so that a lost supervisor is found", fix)
            if row["definer"]:
                yield from self._check_definer(row)
            if not row["of_the_owner"]:
                yield self._strange_owner("function", signature, row["owner"])

    def _check_definer(self, row: Row) -> Iterator[Finding]:
        signature = row["signature"]
        if not row["pinned"]:
            fix = f"alter function {signature} set search_path = pg_catalog, pg_temp"
            yield self._finding(signature, "the path of functions with their owner's rights is pinned", fix)
        if not row["has_authority"] or row["superuser"]:
            fix = f"grant holdfast_process to {row['owner']}, which should not be a superuser"
            yield self._finding(signature, "owners are members of holdfast_process", fix)
        if row["of_that_name"] > 1:
            yield self._finding(signature, "one function has one name", "drop or rename the other")

    def _strange_owner(self, kind: str, name: str, owner: str) -> Finding:
        fix = f"alter {kind} {name} owner to the owner of the schema {self.process.schema}"
        return self._finding(name, f"everything belongs to the owner of the schema, and this to {owner}", fix)

    def _check_rights(self) -> Iterator[Finding]:
        rights = self._look_up(RIGHTS)
        for row in rights:
            yield from self._check_right(row)
        if not any(
            row["kind"] == "schema" and (row["grantee"], row["privilege"]) == (_WORKER, "usage")
            for row in rights
        ):
            fix = f"grant usage on schema {self.process.schema} to {_WORKER}"
            yield self._finding(self.process.schema, "workers may use the schema", fix)
        granted = {
            row["signature"] for row in rights if (row["kind"], row["grantee"]) == ("function", _WORKER)
        }
        for row in self.handlers:
            if row["signature"] not in granted:
                fix = f"grant execute on function {row['signature']} to {_WORKER}"
                yield self._finding(
                    row["signature"], "functions that a worker calls are granted one by one", fix
                )
            if not row["takes_jsonb"]:
                rule = "functions that a worker calls take and return jsonb"
                yield self._finding(row["signature"], rule, "let it take one jsonb and return jsonb")

    def _check_right(self, row: Row) -> Iterator[Finding]:
        kind, name, grantee = row["kind"], row["signature"], row["grantee"]
        what = f"{row['privilege']} ({row['columns']})" if row["columns"] else row["privilege"]
        on = "" if kind in ("table", "column", "view") else f"{kind} "
        fix = f"revoke {'all' if kind in ('table', 'sequence') else what} on {on}{name} from {grantee}"
        if kind in ("table", "sequence", "column"):
            yield self._finding(name, "nobody touches tables", fix)
        elif kind == "schema" and (grantee == "PUBLIC" or row["privilege"] == "create"):
            yield self._finding(
                name, "only the owner creates in the schema, and roles are let in one by one", fix
            )
        elif kind == "view":
            yield from self._check_view(row, fix)
        elif kind == "function":
            yield from self._check_execute(row, fix)
        if row["passed_on"]:
            yield self._finding(name, "no right may be passed on", f"revoke grant option for {fix[7:]}")

    def _check_view(self, row: Row, fix: str) -> Iterator[Finding]:
        if row["grantee"] in ("PUBLIC", _WORKER) or row["privilege"] != "select":
            yield self._finding(
                row["signature"], "readers and clients select from views, and nobody else", fix
            )
        if not any(view["name"] == row["name"] and view["barrier"] for view in self._relations):
            fix = f"alter view {row['signature']} set (security_barrier)"
            yield self._finding(row["signature"], "views that others read are barriers", fix)

    def _check_execute(self, row: Row, fix: str) -> Iterator[Finding]:
        function = next(one for one in self._functions if one["signature"] == row["signature"])
        if row["grantee"] == "PUBLIC":
            yield self._finding(row["signature"], "PUBLIC may execute nothing", fix)
        elif row["grantee"] == _WORKER:
            if function["takes_jsonb"] and not function["definer"]:
                fix = f"alter function {row['signature']} security definer"
                yield self._finding(
                    row["signature"], "functions that a worker calls are security definer", fix
                )
            elif not self.process.shares_schema and not function["takes_jsonb"]:
                yield self._finding(row["signature"], "workers call nothing but handlers", fix)
        elif function["takes_jsonb"] and function["definer"]:
            yield self._finding(row["signature"], "nobody but workers calls supervisors and handlers", fix)
