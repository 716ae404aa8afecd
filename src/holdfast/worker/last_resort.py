"""What is left to do when the event loop does not come round: give back what can be, and leave."""

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from holdfast.engine import Engine
from holdfast.engine import lease as statements
from holdfast.handler import Handler
from holdfast.worker.job import Job
from holdfast.worker.link import arrive, with_defaults
from holdfast.worker.logs import Log
from holdfast.worker.release import release_of
from holdfast.worker.report import HandlerTimeout, Reporter

STUCK_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
PATIENCE_SECONDS = 3.0


class LastResort:
    """From the watchdog's thread, on a connection of its own."""

    def __init__(
        self,
        *,
        url: str,
        worker_id: str,
        handlers: Mapping[str, Handler],
        held: Callable[[], list[Job]],
        reporter: Reporter,
        log: Log,
    ) -> None:
        self._url = with_defaults(url)
        self._worker_id = worker_id
        self._handlers = handlers
        self._held = held
        self._reporter = reporter
        self._log = log

    def leave(self, code: int, why: str, culprit: Job | None = None) -> None:
        """Does not return. What cannot be given back in time is recovered when its lease ends."""
        self._log.critical("worker_stuck", why=why, exit_code=code, **(culprit.name if culprit else {}))
        faulthandler.dump_traceback(all_threads=True)
        giving = threading.Thread(target=self._give_back, args=(culprit,), daemon=True)
        giving.start()
        giving.join(PATIENCE_SECONDS)
        sys.stderr.flush()
        os._exit(code)

    def _give_back(self, culprit: Job | None) -> None:
        try:
            with psycopg.connect(self._url, autocommit=True) as connection:
                arrive(connection)
                self._settle(Engine(connection), culprit)
        except Exception as error:  # noqa: BLE001 - nothing more can be done
            self._log.error("release_refused", error=str(error))

    def _settle(self, engine: Engine, culprit: Job | None) -> Any:
        others = [job for job in self._held() if job is not culprit and not job.outside]
        if others:
            engine.run(release_of(self._worker_id, others))
        if culprit is not None:
            error = HandlerTimeout("the attempt is past its limit and blocks its worker, which ended")
            written = self._reporter.raised(culprit, self._handlers[culprit.type], error)
            engine.run(statements.settle_work("finish", self._worker_id, f"[{written}]"))
