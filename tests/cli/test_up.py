"""The access token of holdfast up: good while it runs, and not for long after."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast._engine import Engine, access
from holdfast._engine.access import AccessTokenStatus
from holdfast.cli import login_token
from holdfast.server.access import hash_of
from support.database import Database

HOLDER = """
import sys, time
from holdfast.cli.login_token import login_token
with login_token(sys.argv[1], "up"):
    print("made", flush=True)
    time.sleep(600)
"""


def tokens(db: Database) -> list[AccessTokenStatus]:
    return Engine(db.connect()).run(access.access_tokens())


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not look():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_the_token_is_revoked_when_it_ends(db: Database) -> None:
    with login_token.login_token(db.dsn, "up") as token:
        [made] = tokens(db)
        assert made.good
        assert Engine(db.connect()).run(access.check_token(hash_of(token)))
    [over] = tokens(db)
    assert not over.good
    assert over.revoked_at


def test_the_token_of_one_that_was_killed_ends_soon_and_is_revoked_at_the_next_start(db: Database) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, db.dsn], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "made\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    [left] = tokens(db)
    assert left.good
    assert re.search(rf"process {holder.pid}$", left.name)
    assert left.expires_at - left.created_at <= timedelta(minutes=5)
    with login_token.login_token(db.dsn, "up"):
        newest, left = tokens(db)
        assert (newest.good, left.good) == (True, False)


def test_the_token_of_another_that_runs_is_left_alone(db: Database) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, db.dsn], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "made\n"
        try:
            with login_token.login_token(db.dsn, "up"):
                assert [token.good for token in tokens(db)] == [True, True]
        finally:
            holder.kill()


def test_the_token_is_renewed_while_it_runs(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_token, "RENEW_SECONDS", 0.01)
    with login_token.login_token(db.dsn, "up"):
        [first] = tokens(db)
        until(lambda: tokens(db)[0].expires_at > first.expires_at)
