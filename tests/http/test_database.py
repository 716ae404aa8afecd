"""The connections of the server, when those who asked do not wait for the answer."""

import asyncio
import logging

import anyio
import pytest

from holdfast.client.connection import Address
from holdfast.engine import AsyncEngine
from holdfast.http import database as http_database
from support.database import Database
from support.web import web_dsn


async def test_who_leaves_in_the_middle_of_a_statement_leaves_nothing_behind(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    connections = http_database.Database(Address(lambda: web_dsn(db)), size=1)

    async def leave(engine: AsyncEngine) -> None:
        # As frameworks do it: cancelled again at each wait, until it is out.
        asyncio.get_running_loop().call_later(0.1, scope.cancel)
        await engine.connection.execute("select pg_sleep(60)")

    with caplog.at_level(logging.WARNING):
        with anyio.CancelScope() as scope:
            await connections.run("holdfast_reader", leave)
        assert scope.cancelled_caught
        await connections.run("holdfast_reader", lambda engine: engine.clock())
    await connections.close()
    assert caplog.records == []
