"""The subscription: which queues and types a worker serves, and which of its application it does not."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from holdfast._engine.schedules import NewSchedule
from holdfast._worker.handler import Handler
from holdfast.middleware import Middleware
from holdfast.settings import Settings

MAILBOX = "mailbox"


class WorkerApp(Protocol):
    """What a worker needs of an application."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def middlewares(self) -> Sequence[Middleware]: ...
    @property
    def name(self) -> str | None: ...
    @property
    def schedules(self) -> Mapping[str, NewSchedule]: ...
    @property
    def sends_messages(self) -> bool: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def origin(self) -> str | None:
        """MODULE:NAME, if the application was named so."""


def subscribed(app: WorkerApp, settings: Settings) -> Settings:
    """Return the settings. If they name neither queues nor prefixes, add the queues of the application."""
    if settings.worker_queues or settings.worker_type_prefixes:
        return settings
    queues = {queue for _, _, queue in _named(app)}
    if app.sends_messages or {settings.email_provider, settings.sms_provider} != {MAILBOX}:
        queues.add("comms")
    return settings.model_copy(update={"worker_queues": tuple(sorted(queues)) or ("default",)})


def queues_of(settings: Settings) -> tuple[str, ...]:
    return settings.worker_queues or (() if settings.worker_type_prefixes else ("default",))


def queues_to_hear(settings: Settings) -> frozenset[str] | None:
    """Return the queues whose notifications wake this worker; None for all, if it serves types by prefix."""
    return None if settings.worker_type_prefixes else frozenset(queues_of(settings))


def describe(app: WorkerApp, settings: Settings) -> dict[str, Any]:
    """What the worker logs at its start."""
    queues = queues_of(settings)
    found: dict[str, Any] = {
        "queues": queues,
        "prefixes": settings.worker_type_prefixes,
        "types": sorted(handler.type for handler in app.handlers.values() if serves(settings, handler)),
        "executors": [
            "python",
            "process",
            *(["command"] if settings.commands else []),
            *(["ray"] if any(handler.executor == "ray" for handler in app.handlers.values()) else []),
            "db_function",
            "email",
            "sms",
        ],
        "concurrency": settings.worker_concurrency,
    }
    if serves_messages(settings):
        found |= {"email_provider": settings.email_provider, "sms_provider": settings.sms_provider}
    return found


def unserved(app: WorkerApp, settings: Settings) -> dict[str, list[str]]:
    """Return the queues of the application that this worker does not serve, and what uses them."""
    found: dict[str, list[str]] = {}
    for name, task_type, queue in _named(app):
        if not _covers(settings, task_type, queue):
            found.setdefault(queue, []).append(name)
    return {queue: sorted(found[queue]) for queue in sorted(found)}


def queue_of(task_type: str, queue: str | None) -> str:
    """Return the named queue, or as the engine does the first segment of the type."""
    return queue or task_type.partition(".")[0].partition(":")[0]


def serves(settings: Settings, handler: Handler) -> bool:
    return _covers(settings, handler.type, queue_of(handler.type, handler.queue))


def serves_messages(settings: Settings) -> bool:
    """Whether this worker serves the tasks that send e-mail and text messages."""
    sends = "comms.send_"
    prefixes = settings.worker_type_prefixes
    return "comms" in queues_of(settings) or any(
        sends.startswith(prefix) or prefix.startswith(sends) for prefix in prefixes
    )


def _named(app: WorkerApp) -> list[tuple[str, str, str]]:
    """The tasks and schedules of the application: name, type, queue."""
    tasks = [(name, name, queue_of(name, handler.queue)) for name, handler in app.handlers.items()]
    schedules = [
        (
            f"schedule {name}",
            schedule.task.type,
            queue_of(schedule.task.type, schedule.task.options.get("queue")),
        )
        for name, schedule in app.schedules.items()
    ]
    return tasks + schedules


def _covers(settings: Settings, task_type: str, queue: str) -> bool:
    prefixes = settings.worker_type_prefixes
    return queue in queues_of(settings) or bool(prefixes and task_type.startswith(prefixes))
