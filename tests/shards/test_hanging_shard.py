"""A shard that hangs: its server takes connections and never answers."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import App
from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast.errors import NoAnswer
from holdfast.isolation.process_tree import family_of
from holdfast.settings import Settings
from support.shard_servers import shard_servers
from support.sharded import run_holdfast

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@contextmanager
def stopped(server: EmbeddedServer) -> Iterator[None]:
    """The processes of the server do not run; the kernel still accepts connections for them."""
    pid = server.status().pid
    assert pid is not None
    family = [pid, *family_of(pid)]
    for one in family:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in family:
            os.kill(one, signal.SIGCONT)


def test_calls_for_a_shard_that_hangs_end_in_time_and_those_for_the_others_go_on() -> None:
    with shard_servers(2) as servers:
        app = App(servers.address(), settings=Settings.load(call_timeout="2s"))

        @app.task("billing.charge")
        def charge() -> None: ...

        keys = {charge.using(key=f"k{n}").enqueue().task_id.bytes[11] % 2: f"k{n}" for n in range(20)}
        with stopped(servers.shards[1]):
            for _ in range(2):  # on an open connection, and on one that cannot be opened
                with pytest.raises(NoAnswer, match="holdfast shards status"):
                    charge.using(key=keys[1]).enqueue()
                charge.using(key=keys[0]).enqueue()
            status = run_holdfast("shards", "status", env=servers.environment())
            check = run_holdfast("shards", "check", env=servers.environment())
            with psycopg.connect(servers.fronts[0].url("front"), autocommit=True) as admin:
                wait_until_sessions_have_ended(admin)
        charge.using(key=keys[1]).enqueue()
        app.close()
    assert (status.returncode, check.returncode) == (2, 1)
    assert re.search(r"s01 +1 +lost .* accepts connections, and does not answer", status.stdout), (
        status.stdout
    )
    assert re.search(r"s01 +connection", check.stdout), check.stdout


def wait_until_sessions_have_ended(admin: psycopg.Connection[Any]) -> None:
    """Those of the callers that gave up: the front would have one more for each call."""
    for _ in range(2000):
        row = admin.execute(
            "select count(*) from pg_stat_activity"
            " where datname = 'front' and state = 'active' and pid <> pg_backend_pid()"
        ).fetchone()
        if row == (0,):
            return
        admin.execute("select pg_sleep(0.05)")
    raise AssertionError("a session of a caller that has gone is left")
