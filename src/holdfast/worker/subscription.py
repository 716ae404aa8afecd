"""Which of an application's tasks a worker would get."""

from collections.abc import Mapping
from typing import Any

from holdfast.handler import Handler
from holdfast.settings import Settings


def queues_of(settings: Settings) -> tuple[str, ...]:
    return settings.worker_queues or (() if settings.worker_type_prefixes else ("default",))


def serves_messages(settings: Settings) -> bool:
    """Whether this worker gets the tasks that send e-mail and text messages."""
    prefixes = settings.worker_type_prefixes
    return "comms" in queues_of(settings) or any("comms.send_".startswith(prefix) for prefix in prefixes)


def described(settings: Settings) -> dict[str, Any]:
    return {
        "queues": queues_of(settings),
        "prefixes": settings.worker_type_prefixes,
        "concurrency": settings.worker_concurrency,
    }


def unserved_queues(handlers: Mapping[str, Handler], settings: Settings) -> list[str]:
    """Where tasks of the application go that this worker will never see."""
    served, prefixes = queues_of(settings), settings.worker_type_prefixes
    return sorted(
        {
            queue
            for handler in handlers.values()
            if (queue := queue_of(handler)) not in served and not handler.type.startswith(prefixes or ("\0",))
        }
    )


def queue_of(handler: Handler) -> str:
    """As the engine does it: the first segment of the type, unless one is named."""
    return handler.queue or handler.type.partition(".")[0].partition(":")[0]
