"""Sends of both channels, called as an application and a worker would, and what the tables then hold."""

import json
from dataclasses import dataclass
from typing import Any, cast

from support.engine import Connection, Row, call, rows, value


@dataclass(frozen=True)
class Channel:
    """E-mail and text messages differ in names and in what a message has; their processes are the same."""

    name: str

    @property
    def root(self) -> str:
        return f"send_{self.name}_task"

    @property
    def supervisor(self) -> str:
        return f"comms.send_{self.name}_supervisor"

    @property
    def sender(self) -> str:
        """The type of the tasks that make an attempt."""
        return f"comms.send_{self.name}"

    @property
    def status_view(self) -> str:
        return f"comms.send_{self.name}_status"

    def handler(self, what: str) -> str:
        return {
            "before": f"comms.get_{self.name}_payload",
            "success": f"comms.record_{self.name}_success",
            "error": f"comms.record_{self.name}_failure",
        }[what]

    def message(self, **given: Any) -> Row:
        usual = {"recipient": "+4915112345678", "text_body": "Your code is 123456"}
        if self.name == "email":
            usual |= {"recipient": "ada@example.org", "subject": "Your code"}
        return usual | given

    def create(self, conn: Connection, **given: Any) -> int:
        (row,) = call(conn, f"comms.create_{self.name}_message", self.message(**given))
        return cast("int", next(iter(row.values())))

    def kick_off(self, conn: Connection, **terms: Any) -> int:
        message_id = terms.pop("message_id", None) or self.create(conn)
        (row,) = call(conn, f"comms.kickoff_{self.root}", {"message_id": message_id, **terms})
        return cast("int", next(iter(row.values())))

    def supervise(self, conn: Connection, send: int, **more: Any) -> Row:
        """What the supervisor decides now."""
        return cast("Row", run(conn, self.supervisor, {f"{self.root}_id": send, **more})["payload"])

    def succeed(self, conn: Connection, send: int, attempt: int | None = None) -> Row:
        sent = {"provider": "resend", "message_id": f"m-{send}", "detail": {"status": 200}}
        return run(conn, self.handler("success"), self._outcome(send, attempt, worker_payload=sent))

    def fail(self, conn: Connection, send: int, attempt: int | None = None, **error: Any) -> Row:
        told = {"kind": "http_500", "message": "the provider is down", **error}
        return run(conn, self.handler("error"), self._outcome(send, attempt, error=told))

    def _outcome(self, send: int, attempt: int | None, **more: Any) -> Row:
        original: Row = {"task_type": self.name, f"{self.root}_id": send}
        if attempt is not None:
            original["attempt"] = attempt
        return {"original_payload": original, **more}

    def facts(self, conn: Connection, fact: str, send: int) -> list[Row]:
        order = "run" if fact == "supervised" else "attempt"
        return rows(
            conn, f"select * from comms.{self.root}_{fact} where {self.root}_id = %s order by {order}", [send]
        )

    def decisions(self, conn: Connection, send: int) -> list[str]:
        return [row["decision"] for row in self.facts(conn, "supervised", send)]

    def counts(self, conn: Connection, send: int) -> dict[str, int]:
        facts = ("scheduled", "failed", "succeeded", "supervised")
        return {fact: len(self.facts(conn, fact, send)) for fact in facts}

    def status(self, conn: Connection, send: int) -> Row:
        (row,) = rows(conn, f"select * from {self.status_view} where {self.root}_id = %s", [send])
        return row

    def tasks(self, conn: Connection, send: int, task_type: str | None = None) -> list[Row]:
        """Every task of the send that was ever in the queue, in the order in which they were asked for."""
        return rows(
            conn,
            f"""select s.* from queues.task_status s join queues.task t using (task_id)
                where s.payload ->> '{self.root}_id' = %s and t.type = coalesce(%s, t.type)
                order by t.task_id""",
            [str(send), task_type],
        )


def run(conn: Connection, function: str, payload: Any) -> Row:
    """Call a business function; its envelope."""
    return cast("Row", value(conn, f"select {function}(%s::jsonb)", [json.dumps(payload)]))


def waiting_runs(conn: Connection, channel: Channel, send: int) -> list[Row]:
    """The tasks of its supervisor that have not begun."""
    return [
        task
        for task in channel.tasks(conn, send, channel.supervisor)
        if task["status"] in ("pending", "scheduled")
    ]


def broken_sends(conn: Connection, channel: Channel) -> dict[str, Any]:
    """The rules that sends which have ended break, with some rows that break them."""
    root = channel.root
    rules = {
        "a send has exactly one end": f"""
            select t.{root}_id from comms.{root} t
            left join comms.{root}_supervised s on s.{root}_id = t.{root}_id and s.next_task_id is null
            group by 1 having count(s.run) <> 1""",
        "every attempt has exactly one outcome": f"""
            select a.{root}_id, a.attempt from comms.{root}_scheduled a
            left join comms.{root}_failed f using ({root}_id, attempt)
            left join comms.{root}_succeeded s using ({root}_id, attempt)
            where (f.failed_at is null) = (s.succeeded_at is null)""",
        "the end is what the facts say": f"""
            select t.{root}_id, e.decision, f.n from comms.{root} t
            join comms.{root}_supervised e on e.{root}_id = t.{root}_id and e.next_task_id is null
            left join comms.{root}_succeeded s on s.{root}_id = t.{root}_id
            cross join lateral (select count(*) as n, bool_or(f.outcome_unknown) as unknown
              from comms.{root}_failed f where f.{root}_id = t.{root}_id) f
            where e.decision <> case when s.{root}_id is not null then 'succeeded'
              when f.n = t.max_attempts or f.unknown and t.when_unknown = 'stop' then 'failed'
              else 'there is no reason to end' end""",
        "the queue says of an attempt what the facts say": f"""
            select a.{root}_id, a.attempt, o.status from comms.{root}_scheduled a
            join queues.task t on t.task_id = a.task_id  -- retention may have removed it
            left join comms.{root}_succeeded s using ({root}_id, attempt)
            left join queues.outcome o on o.task_id = a.task_id
            where (o.status = 'succeeded') is distinct from (s.{root}_id is not null)""",
        "attempts are numbered without gaps": f"""
            select {root}_id from comms.{root}_scheduled group by 1 having max(attempt) <> count(*)""",
    }
    found = {rule: rows(conn, query) for rule, query in rules.items()}
    return {rule: broken[:5] for rule, broken in found.items() if broken}


CHANNELS = [Channel("email"), Channel("sms")]
