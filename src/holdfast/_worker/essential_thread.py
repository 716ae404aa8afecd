"""A thread without which a worker must not go on."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

Failed = Callable[[str, BaseException], None]
"""Gets the name of a thread and the error that ended it. Called in that thread."""


class EssentialThread(threading.Thread, ABC):
    """If it ends with an error, the worker ends: nobody would renew its leases, or do what a leader does."""

    def __init__(self, name: str, failed: Failed) -> None:
        super().__init__(name=f"holdfast-{name}", daemon=True)
        self._ended_by = failed
        self._part = name

    @abstractmethod
    def work(self) -> None:
        """What the thread does until it is closed."""

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - the worker logs it, and ends
            self._ended_by(self._part, error)
