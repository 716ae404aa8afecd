"""Reading: what runs remember comes a few runs at a time, and large results page by page."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from holdfast._connections.worker_connection import WorkerConnection
from holdfast._engine import health, steps
from holdfast._serialization.text import load_json
from holdfast._telemetry.logs import Log
from holdfast._worker.jobs import Job, Stop
from holdfast._worker.setbacks import got_over, is_outage, try_later
from holdfast._workflows.facts import FactRow, unreadable_row
from holdfast._workflows.journal import Read
from holdfast.errors import HoldfastError, TooLarge, is_about_content

MAX_AT_ONCE = 8
"""Each may remember some 20 MiB, and all come in one answer."""
_LIMIT = "54000"
"""A limit of PostgreSQL: to a call that only reads, and needs no transaction id, it is one of size."""


class NextPage(NamedTuple):
    """The step whose results are read next, and the place after which."""

    step: str
    after: int


class ResultPages:
    """The rows of one run, and the results that are read for them, page by page.

    Results past `max_memo_bytes` are not read. The step then has none, and raises RunTooLong when it is asked
    for them: a run that does not use them goes on.
    """

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self._rows = [FactRow(*row) for row in rows]
        self._open = [
            n for n, row in enumerate(self._rows) if row.fact == "children" and _is_paged(row.error or "")
        ]
        self._read: list[str] = []
        self._after = 0
        self._bytes = 0
        self._most = 0
        if self._open:
            self._most = next(load_json(r.result)["max_memo_bytes"] for r in self._rows if r.fact == "run")
            self._bytes = sum(len(row.result or "") for row in self._rows if row.fact == "children")

    @property
    def next(self) -> NextPage | None:
        """What to read, or None if nothing is missing."""
        return NextPage(self._rows[self._open[0]].name or "", self._after) if self._open else None

    @property
    def rows(self) -> Sequence[Sequence[Any]]:
        return self._rows

    def add(self, page: Sequence[tuple[int, str]]) -> bool:
        """Add what was read. False if there was nothing: a child has changed, or the lease is lost."""
        if not page:
            return False
        self._after = page[-1][0]
        self._read += [result for _, result in page]
        self._bytes += sum(len(result) for _, result in page)
        row = self._rows[self._open[0]]
        about = load_json(row.error)
        expected = (row.number or 0) - len(about.get("others") or ())
        if self._bytes > self._most:
            # What one step leaves of the limit is too little for the next ones, too.
            for n in self._open:
                about = load_json(self._rows[n].error) | {"too_large": self._most}
                self._rows[n] = self._rows[n]._replace(error=json.dumps(about))
            self._open, self._read = [], []
        elif len(self._read) >= expected:
            self._rows[self._open[0]] = row._replace(result=f"[{','.join(self._read)}]")
            del self._open[0]
            self._read, self._after = [], 0
        return True


def _is_paged(about: str) -> bool:
    return '"paged"' in about and bool(load_json(about).get("paged"))


class RunRead(NamedTuple):
    """A run to be read: what to call with its facts, and the signals whose payloads it wants."""

    job: Job
    done: Read
    signals: Sequence[str]
    failures: int = 0


class RunReader:
    """Reads what runs remember, on the connection of the recorder, which calls it."""

    def __init__(
        self,
        connection: WorkerConnection,
        worker_id: str,
        log: Log,
        stop: Callable[[Job, Stop], None],
        wake: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._worker_id = worker_id
        self._log = log
        self._stop = stop
        self._wake = wake
        self._reads: list[RunRead] = []
        self._pages: list[tuple[RunRead, ResultPages, float]] = []

    @property
    def has_more(self) -> bool:
        return bool(self._reads or self._pages)

    def add(self, read: RunRead) -> None:
        self._reads.append(read)
        self._wake()

    async def read_some(self) -> None:
        """A few runs in one statement, one that failed before, and one page of large results."""
        batch = [read for read in self._reads if not read.failures][:MAX_AT_ONCE]
        alone = [read for read in self._reads if read.failures][:1]
        self._reads = [read for read in self._reads if read not in batch and read not in alone]
        for reads in (batch, alone):
            if reads:
                await self._read(reads)
        if self._pages:
            await self._read_page(*self._pages.pop(0))

    async def _read(self, batch: list[RunRead]) -> None:
        held = [steps.read_json(read.job.task_id, read.job.token, read.signals) for read in batch]
        try:
            facts = await self._connection.run(partial(steps.read_steps, self._worker_id, held))
        except HoldfastError as error:
            await self._not_read(batch, error)
            return
        for read in batch:
            if read.failures:
                got_over(read)
            rows = facts.rows.get(read.job.task_id)
            if rows is None or rows[0][0] == "lost":
                self._stop(read.job, "lost")
                read.done(None, facts.clock)
                continue
            pages = ResultPages(rows)
            if pages.next is None:
                read.done(rows, facts.clock)
            else:
                self._pages.append((read, pages, facts.clock))

    async def _read_page(self, read: RunRead, pages: ResultPages, clock: float) -> None:
        """One page at a time: the other runs go on between two of them."""
        assert pages.next is not None  # noqa: S101 - it was looked at
        statement = steps.read_results(self._worker_id, read.job.task_id, read.job.token, *pages.next)
        try:
            page = await self._connection.run(lambda: statement)
        except HoldfastError as error:
            await self._not_read([read], error)
            return
        if not pages.add(page):
            self.add(read)  # which tells whether the lease is lost
        elif pages.next is None:
            read.done(pages.rows, clock)
        else:
            self._pages.append((read, pages, clock))

    async def _not_read(self, batch: list[RunRead], error: HoldfastError) -> None:
        """A run that cannot be read fails alone, or is read again alone: it must not delay the others."""
        if error.sqlstate == _LIMIT:
            error = TooLarge(str(error), sqlstate=error.sqlstate)
        if is_outage(error) and not await self._is_answered():
            self._reads = [*batch, *self._reads]
            self._wake()
            await self._connection.pause(error)
        elif len(batch) > 1:
            for one in batch:
                await self._read([one])
        elif is_about_content(error):
            self._log.error("run_unreadable", **batch[0].job.log_fields, error=str(error))
            batch[0].done([unreadable_row(error)], 0.0)
        else:
            delay = try_later(batch[0], self.add, "run_not_read")
            fields = batch[0].job.log_fields
            self._log.warning("run_not_read", **fields, error=str(error), retry_in=delay)

    async def _is_answered(self) -> bool:
        """Whether another connection works at once: then it was lost because of what was read on it."""
        try:
            await self._connection.run(health.clock)
        except HoldfastError:
            return False
        return True
