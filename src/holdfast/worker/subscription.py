"""Which tasks a worker serves, and which of its application's it does not."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from holdfast import comms
from holdfast.engine.schedules import NewSchedule
from holdfast.handler import Handler
from holdfast.settings import Settings

MAILBOX = "mailbox"
_SENDING = ("send_email", "asend_email", "send_sms", "asend_sms")


class Application(Protocol):
    """What a subscription depends on."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...
    @property
    def schedules(self) -> Mapping[str, NewSchedule]: ...


def subscribed(app: Application, settings: Settings, modules: Mapping[str, object] = sys.modules) -> Settings:
    """The settings; where neither queues nor prefixes are set, with the queues of the application itself."""
    if settings.worker_queues or settings.worker_type_prefixes:
        return settings
    queues = {queue for _, _, queue in _named(app)}
    if sends_messages(settings, modules):
        queues.add("comms")
    return settings.model_copy(update={"worker_queues": tuple(sorted(queues)) or ("default",)})


def queues_of(settings: Settings) -> tuple[str, ...]:
    return settings.worker_queues or (() if settings.worker_type_prefixes else ("default",))


def concerns(settings: Settings) -> Callable[[str], bool]:
    """Whether a worker serves the queue that a notification names, which may be another worker's."""
    queues = frozenset(settings.worker_queues or ("default",))
    any_queue = bool(settings.worker_type_prefixes)
    return lambda queue: any_queue or queue in queues


def describe(app: Application, settings: Settings) -> dict[str, Any]:
    """What the worker says of itself at its start."""
    queues = queues_of(settings)
    found: dict[str, Any] = {
        "queues": queues,
        "prefixes": settings.worker_type_prefixes,
        "types": sorted(handler.type for handler in app.handlers.values() if serves(settings, handler)),
        "executors": [
            "python",
            "process",
            *(["command"] if settings.commands else []),
            "db_function",
            "email",
            "sms",
        ],
        "concurrency": settings.worker_concurrency,
    }
    if serves_messages(settings):
        found |= {"email_provider": settings.email_provider, "sms_provider": settings.sms_provider}
    return found


def unserved(app: Application, settings: Settings) -> dict[str, list[str]]:
    """The queues of tasks and schedules that this worker never sees, and what goes there."""
    found: dict[str, list[str]] = {}
    for name, task_type, queue in _named(app):
        if not _covers(settings, task_type, queue):
            found.setdefault(queue, []).append(name)
    return {queue: sorted(found[queue]) for queue in sorted(found)}


def queue_of(task_type: str, queue: str | None) -> str:
    """As the engine does it: the first segment of the type, unless one is named."""
    return queue or task_type.partition(".")[0].partition(":")[0]


def serves(settings: Settings, handler: Handler) -> bool:
    return _covers(settings, handler.type, queue_of(handler.type, handler.queue))


def serves_messages(settings: Settings) -> bool:
    """Whether this worker gets the tasks that send e-mail and text messages."""
    sends = "comms.send_"
    prefixes = settings.worker_type_prefixes
    return "comms" in queues_of(settings) or any(
        sends.startswith(prefix) or prefix.startswith(sends) for prefix in prefixes
    )


def sends_messages(settings: Settings, modules: Mapping[str, object]) -> bool:
    """Whether the application sends: a provider is set, or one of its modules has imported what sends."""
    if settings.email_provider != MAILBOX or settings.sms_provider != MAILBOX:
        return True
    sending = [comms, *(vars(comms)[name] for name in _SENDING if name in vars(comms))]
    return any(
        value is one
        for name, module in list(modules.items())
        if not f"{name}.".startswith("holdfast.")
        for value in list(getattr(module, "__dict__", {}).values())
        for one in sending
    )


def _named(app: Application) -> list[tuple[str, str, str]]:
    """Tasks and schedules as people know them, with their types and queues."""
    tasks = [(name, name, queue_of(name, handler.queue)) for name, handler in app.handlers.items()]
    schedules = [
        (f"schedule {name}", schedule.task.type, queue_of(schedule.task.type, schedule.task.queue))
        for name, schedule in app.schedules.items()
    ]
    return tasks + schedules


def _covers(settings: Settings, task_type: str, queue: str) -> bool:
    prefixes = settings.worker_type_prefixes
    return queue in queues_of(settings) or bool(prefixes and task_type.startswith(prefixes))
