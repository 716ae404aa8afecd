"""The access token of `holdfast up` and `holdfast dev`: valid while they run, and not for long after."""

import contextlib
import os
import platform
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import psycopg

from holdfast._engine import Engine, access
from holdfast.errors import HoldfastError, translate
from holdfast.server.access import hash_of, new_token

T = TypeVar("T")

TOKEN_LIFE = timedelta(minutes=5)
RENEW_SECONDS = 60.0


@contextlib.contextmanager
def login_token(url: str, command: str) -> Iterator[str]:
    """An access token that is renewed while everything runs, and expires soon after."""
    token, renewing = new_token(), threading.Event()
    _with_engine(url, _revoke_left_behind)
    name = _token_name(command, os.getpid())
    token_id = _with_engine(
        url, lambda it: it.run(access.create_token(name, ["admin"], hash_of(token), TOKEN_LIFE))
    )

    def renew() -> None:
        while not renewing.wait(RENEW_SECONDS):
            with contextlib.suppress(HoldfastError):  # it is renewed again before it expires
                _with_engine(url, lambda it: it.run(access.renew_token(token_id, TOKEN_LIFE)))

    thread = threading.Thread(target=renew, name="renew", daemon=True)
    thread.start()
    try:
        yield token
    finally:
        renewing.set()
        thread.join()
        with contextlib.suppress(HoldfastError):  # it expires anyway
            _with_engine(
                url, lambda it: it.run(access.revoke_token(token_id, f"holdfast {command} has ended"))
            )


def _token_name(command: str, pid: int) -> str:
    return f"holdfast {command} on {platform.node()[:60]}, process {pid}"


def _revoke_left_behind(engine: Engine) -> None:
    """Revoke tokens of processes on this machine that were killed."""
    for token in engine.run(access.access_tokens()):
        found = re.fullmatch(r"holdfast (up|dev) on .*, process (\d+)", token.name)
        if not found or not token.good:
            continue
        command, pid = found[1], int(found[2])
        if token.name == _token_name(command, pid) and not _is_alive(pid):
            engine.run(access.revoke_token(token.token_id, f"its holdfast {command} was killed"))


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():  # the process id was reused
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _with_engine(url: str, work: Callable[[Engine], T]) -> T:
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            return work(Engine(connection))
    except psycopg.Error as error:
        raise translate(error) from error
