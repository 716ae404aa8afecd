"""Servers that live as long as the tests that use them."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.postgres import EMBEDDED_VERSION, EmbeddedServer
from support import guard

# Nothing here has to survive a power cut; synchronous_commit stays on, because tests ask about it.
DISPOSABLE = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "128MB"}


@contextmanager
def disposable_home(version: int = EMBEDDED_VERSION) -> Iterator[Path]:
    """A short path whose server, if any, is stopped and removed at the end."""
    home = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    command = [sys.executable, guard.__file__, str(home), str(version)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield home
        process.communicate()
    assert process.returncode == 0


@contextmanager
def disposable_server(version: int = EMBEDDED_VERSION) -> Iterator[EmbeddedServer]:
    with disposable_home(version) as home:
        server = EmbeddedServer(home, version, DISPOSABLE)
        server.start()
        yield server
