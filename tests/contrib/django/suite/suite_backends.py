"""Our backend with what Django's tests of its own backends expect: a list of results, or results at once."""

from typing import Any

from holdfast.contrib.django.backend import HoldfastBackend
from holdfast.contrib.django.testing import Sandbox


class RecordingBackend(HoldfastBackend):
    """Like Django's DummyBackend: `results` lists what was enqueued, and `clear` removes it."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[Any] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self.results.append(result)
        return result

    def clear(self) -> None:
        Sandbox().close()
        self.results.clear()


class DrainingBackend(HoldfastBackend):
    """Like Django's ImmediateBackend: a task that was enqueued is run, as a worker does it."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        Sandbox().drain()
        result.refresh()
        return result
