"""A business process that was kicked off: where it stands, how it ended, and an address to wait for it."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from holdfast.client import Client
from holdfast.client.span import WAIT_TTL, seconds
from holdfast.client.wait import process_not_found
from holdfast.client.wait_ticket import issue, wait_url
from holdfast.engine import processes
from holdfast.engine.processes import ProcessStatus, RegisteredProcess
from holdfast.errors import TaskNotFound

if TYPE_CHECKING:
    from holdfast.settings import Settings


class Place(Protocol):
    """What the handle of a process needs of its app."""

    @property
    def settings(self) -> "Settings": ...
    def connect(self) -> Client: ...


class ProcessHandle:
    """One process, once its kickoff is committed. Holds no connection; `app.process` makes it again."""

    __slots__ = ("_home", "process", "process_id")

    def __init__(self, process: str, process_id: int, home: Place) -> None:
        self.process = process
        self.process_id = process_id
        self._home = home

    def __repr__(self) -> str:
        return f"<ProcessHandle of {self.process} {self.process_id}>"

    def status(self) -> ProcessStatus:
        return self._found(
            self._home.connect().run(
                lambda engine: engine.run(processes.process_status(self.process, self.process_id))
            )
        )

    async def astatus(self) -> ProcessStatus:
        return self._found(
            await self._home.connect().arun(
                lambda engine: engine.run(processes.process_status(self.process, self.process_id))
            )
        )

    def wait(self, timeout: float | None = None) -> ProcessStatus:
        """Until the process has ended, however. Raises TimeoutError after that many seconds."""
        return self._home.connect().run_async(self.await_end(timeout))

    async def await_end(self, timeout: float | None = None) -> ProcessStatus:  # noqa: ASYNC109 - as for a task's result
        return await self._home.connect().await_process(self.process, self.process_id, timeout)

    def cancel(self, reason: str | None = None) -> str:
        """End it, unless it has ended; returns the decision it ended with."""
        client = self._home.connect()
        function = self._cancels(client.run(lambda engine: engine.run(processes.registered_processes())))
        return client.run(
            lambda engine: engine.run(processes.cancel_process(function, self.process_id, reason))
        )

    async def acancel(self, reason: str | None = None) -> str:
        client = self._home.connect()
        function = self._cancels(
            await client.arun(lambda engine: engine.run(processes.registered_processes()))
        )
        return await client.arun(
            lambda engine: engine.run(processes.cancel_process(function, self.process_id, reason))
        )

    def wait_url(self, ttl: float | timedelta = WAIT_TTL) -> str:
        """An address at which a front end may wait for this process, and no other, until the ttl is over."""
        settings, subject = self._home.settings, (self.process, self.process_id)
        ticket = issue(settings.web_secrets, subject, seconds("ttl", ttl), time.time())
        return wait_url(settings.web_url, subject, ticket)

    def _found(self, status: ProcessStatus | None) -> ProcessStatus:
        if status is None:
            raise process_not_found(self.process, self.process_id)
        return status

    def _cancels(self, known: list[RegisteredProcess]) -> str:
        for one in known:
            if one.process == self.process:
                return one.cancel
        raise TaskNotFound(
            f"there is no process {self.process}",
            hint=f"Known are: {', '.join(one.process for one in known) or 'none'}.",
        )
