"""A text everywhere that the engine lets it be: in names, documents, errors, reasons and mails."""

import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import quote
from uuid import UUID, uuid4

from holdfast._engine import (
    Engine,
    access,
    enqueue,
    events,
    health,
    leases,
    messages,
    queues,
    schedules,
    tasks,
    workers,
)
from holdfast._engine.enqueue import NewTask
from holdfast._engine.events import Settlement
from holdfast._engine.schedules import NewSchedule
from holdfast.server.access import hash_of, new_token
from support.leases import ended, holding

SPACES = r"\s\x00-\x20\x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff"
"""What the engine lets no name hold."""

CONTROLS = r"[\x00-\x1f\x7f-\x9f\u2028\u2029]"
"""What it lets no line of a mail hold."""


@dataclass(frozen=True)
class Staged:
    """Where the text can be met."""

    task_id: UUID
    running_id: UUID
    send_id: int
    subscription: str
    worker: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (
            f"/tasks/{self.task_id}",
            f"/tasks/{self.running_id}",
            f"/processes/comms.send_email/{self.send_id}",
            f"/outbox/show?name={quote(self.subscription)}",
            f"/workers/show?id={quote(self.worker)}",
        )


def stage(engine: Engine, text: str) -> Staged:
    word, line = _word(text), _cut(re.sub(CONTROLS, " ", text).strip(), 200) or "x"
    queue = f"h{uuid4().hex}{word}"
    worker = _register(engine, text, queue)
    task_id = _end(engine, text, queue, worker)
    running_id = _run(engine, text, queue, worker)
    engine.run(queues.pause(queue, text))
    engine.run(
        schedules.add_schedule(
            NewSchedule(
                name=f"s{uuid4().hex}{word}", task=NewTask(f"{queue}.{word}"), every=timedelta(days=1)
            )
        )
    )
    subscription = _emit(engine, text, line, word)
    send_id = _mail(engine, text, line)
    token_id = engine.run(access.create_token(line[:60], ["read"], hash_of(new_token())))
    engine.run(access.revoke_token(token_id, text))
    return Staged(task_id, running_id, send_id, subscription, worker)


def _word(text: str) -> str:
    return _cut(re.sub(f"[.:{SPACES}]+", "_", text), 40).strip("_") or "x"


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode(errors="ignore")


def _register(engine: Engine, text: str, queue: str) -> str:
    worker = f"{uuid4().hex}{_cut(text, 150)}"
    engine.run(workers.register_worker(worker, text[:100], queues=[queue], version=text[:50]))
    return worker


def _end(engine: Engine, text: str, queue: str, worker: str) -> UUID:
    key = f"{uuid4().hex}{text}"[:100]
    task_id = engine.run(
        enqueue.enqueue(
            NewTask(
                f"{queue}.{_word(text)}",
                {text: text},
                queue=queue,
                idempotency_key=key,
                metadata={text: text},
            )
        )
    )
    [claimed] = engine.run(leases.claim(worker, queues=[queue]))
    error = {"kind": text, "message": text, "traceback": text}
    engine.run(leases.finish(worker, [ended(task_id, claimed.token, "failed", {text: text}, error=error)]))
    engine.run(tasks.delete_task(task_id, text))
    engine.run(tasks.restore_task(task_id, text))
    return task_id


def _run(engine: Engine, text: str, queue: str, worker: str) -> UUID:
    task_id = engine.run(enqueue.enqueue(NewTask(f"{queue}.{_word(text)}", {text: text}, queue=queue)))
    [claimed] = engine.run(leases.claim(worker, queues=[queue]))
    progress = {"done": 1, "total": 2, "note": text}
    engine.run(
        leases.heartbeat(worker, [holding(task_id, claimed.token, engine.run(health.clock()), progress)])
    )
    return task_id


def _emit(engine: Engine, text: str, line: str, word: str) -> str:
    kind = f"n{uuid4().hex}"
    name = f"{kind}{word}"
    subscription_id = engine.run(events.subscribe(name, "console", f"-{word}", [f"{kind}.*"]))
    engine.run(events.emit(f"{kind}.{word}", {text: text}, line))
    [claimed] = engine.run(events.claim_events("d1", subscription_id))
    lost = Settlement(subscription_id, claimed.event_id, claimed.token, "rejected", text)
    engine.run(events.settle_events("d1", [lost]))
    engine.run(events.pause_subscription(name, text))
    return name


def _mail(engine: Engine, text: str, line: str) -> int:
    engine.run(
        messages.keep_message(
            "email", "a@example.org", uuid4().hex, sender=line, subject=line, text_body=text, html_body=text
        )
    )
    return engine.run(
        messages.send_email(recipient="a@example.org", subject=line, text_body=text, html_body=text)
    )
