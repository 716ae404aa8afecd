"""The handle of a business process that was kicked off."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from holdfast._connections.wait_ticket import WAIT_TTL, issue, wait_url
from holdfast._connections.waiting import not_found
from holdfast._engine import Statement, processes
from holdfast._engine.processes import ProcessStatus
from holdfast.options import check_duration

if TYPE_CHECKING:
    from holdfast._connections.client import Client
    from holdfast.settings import Settings


class ProcessHome(Protocol):
    """What the handle of a business process needs of its app."""

    @property
    def settings(self) -> "Settings": ...
    def connect(self) -> "Client": ...


class ProcessHandle:
    """A business process that was kicked off. It holds no connection; `app.process` makes it again."""

    __slots__ = ("_home", "process", "process_id")

    def __init__(self, process: str, process_id: int, home: ProcessHome) -> None:
        self.process = process
        self.process_id = process_id
        self._home = home

    def __repr__(self) -> str:
        return f"<ProcessHandle of {self.process} {self.process_id}>"

    def status(self) -> ProcessStatus:
        return self._found(self._home.connect().run(self._status(), "status"))

    async def astatus(self) -> ProcessStatus:
        return self._found(await self._home.connect().arun(self._status()))

    def wait_end(self, timeout: float | timedelta | None = None) -> ProcessStatus:
        """Wait for the end of the process. Raises TimeoutError after that many seconds."""
        return self._home.connect().run_async(self.await_end(timeout), "wait", "await_end")

    async def await_end(self, timeout: float | timedelta | None = None) -> ProcessStatus:  # noqa: ASYNC109 - part of the API
        return await self._home.connect().await_process(self.process, self.process_id, timeout)

    def cancel(self, reason: str | None = None) -> str:
        """Cancel the process unless it has ended. Returns the decision that it ended with."""
        statement = processes.cancel_process(self.process, self.process_id, reason)
        return self._home.connect().run(statement, "cancel")

    async def acancel(self, reason: str | None = None) -> str:
        statement = processes.cancel_process(self.process, self.process_id, reason)
        return await self._home.connect().arun(statement)

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """A URL at which a front end can wait for this process and no other, until the ttl is over."""
        settings, subject = self._home.settings, (self.process, self.process_id)
        ticket = issue(settings.web_secrets, subject, check_duration("ttl", ttl), time.time())
        return wait_url(settings.web_url, subject, ticket)

    def _status(self) -> Statement[ProcessStatus | None]:
        return processes.process_status(self.process, self.process_id)

    def _found(self, status: ProcessStatus | None) -> ProcessStatus:
        if status is None:
            raise not_found((self.process, self.process_id))
        return status
