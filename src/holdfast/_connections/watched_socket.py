"""Watches the socket of a connection in the event loop, by a descriptor of its own.

libpq closes its descriptor as soon as it notices that the server is gone, while the event loop still has a
reader for that number. The next socket gets the same number. `selectors.modify` finds the old reader and asks
the kernel for nothing new; the kernel, which forgot the closed descriptor, never reports the new socket.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from psycopg.pq.abc import PGconn


class WatchedSocket:
    """Calls `readable` when the socket can be read, and what `write_with` is given when it can be written."""

    def __init__(self, pgconn: PGconn, readable: Callable[..., None], *arguments: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.dup(pgconn.socket)
        self._writing = False
        # The number is ours: a reader that somebody left behind under it is not for a socket that exists.
        self._loop.remove_reader(self._descriptor)
        self._loop.remove_writer(self._descriptor)
        self._loop.add_reader(self._descriptor, readable, *arguments)

    def write_with(self, writable: Callable[..., None] | None, *arguments: Any) -> None:
        """Also watch whether it can be written, or no longer."""
        if writable is not None and not self._writing:
            self._loop.add_writer(self._descriptor, writable, *arguments)
        elif writable is None and self._writing:
            self._loop.remove_writer(self._descriptor)
        self._writing = writable is not None

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
