"""Sending piece by piece, so that a reader who does not read costs a small buffer and ends by itself."""

import asyncio
from collections.abc import Mapping

from starlette.types import Receive, Send

PIECE_BYTES = 64 * 1024
PATIENCE_SECONDS = 30.0


class SlowReader(Exception):
    """A reader took nothing for so long that the connection is given up."""


async def send_bounded(
    send: Send, status: int, body: bytes, media_type: str, headers: Mapping[str, str]
) -> None:
    """A whole answer, never more than a piece ahead of its reader."""
    await begin(send, status, media_type, {"Content-Length": str(len(body)), **headers})
    for place in range(0, len(body), PIECE_BYTES):
        await send_piece(send, body[place : place + PIECE_BYTES])
    await send_piece(send, b"", more=False)


async def begin(send: Send, status: int, media_type: str, headers: Mapping[str, str]) -> None:
    given = {"Content-Type": media_type, **headers}
    encoded = [(name.lower().encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def send_piece(send: Send, piece: bytes, *, more: bool = True) -> None:
    # The server waits here until its own buffer has drained.
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    except TimeoutError:
        raise SlowReader from None


async def disconnected(receive: Receive) -> None:
    """Until the other side has hung up."""
    while (await receive())["type"] != "http.disconnect":
        pass
