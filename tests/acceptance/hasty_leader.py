"""A leader without an election: fires schedules without a pause, until it is killed."""

import logging
import multiprocessing
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from time import sleep

import psycopg
import structlog

from holdfast._engine import Engine
from holdfast._telemetry.logs import worker_log
from holdfast._worker.scheduling import FireSchedules

# Forked from a process that has imported all this, because a test kills more of them than it could start.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


class HastyLeader:
    """In a process of its own."""

    def __init__(self, url: str) -> None:
        self._leads: Event = _context.Event()
        self._process: ForkServerProcess = _context.Process(
            target=_lead, args=(url, self._leads), daemon=True
        )
        self._process.start()

    def wait_until_it_leads(self) -> None:
        assert self._leads.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()


def _lead(url: str, leads: Event) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    duty = FireSchedules(worker_log("hasty"))
    with psycopg.connect(url, autocommit=True) as connection:
        leads.set()
        while True:
            duty.run(Engine(connection).run)
            sleep(0.002)
