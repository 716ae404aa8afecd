"""Litestar: a request writes an order and enqueues its shipment in the same asyncpg transaction.

To run it:

    holdfast worker litestar_shop:tasks
    uvicorn litestar_shop:web
    curl -X POST 'localhost:8000/orders?item=lamp'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
from litestar import Litestar, Request, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery

from holdfast import App

tasks = App()


@tasks.task("shop.ship")
async def ship(order_id: int, item: str) -> str:
    return f"order {order_id}: {item} is on its way"


async def open_transaction(request: Request[Any, Any, Any]) -> AsyncIterator[Any]:
    """Committed at the end of the request, or rolled back if it raises."""
    async with request.app.state.pool.acquire() as connection, connection.transaction():
        yield connection


@post("/orders", dependencies={"tx": Provide(open_transaction)})
async def place_order(item: FromQuery[str], tx: NamedDependency[Any]) -> dict[str, str]:
    order_id = await tx.fetchval("insert into orders (item) values ($1) returning id", item)
    handle = await ship.using(key=f"order-{order_id}", tx=tx).aenqueue(order_id, item)
    return {"task_id": str(handle.task_id)}


@get("/tasks/{task_id:uuid}")
async def show_task(task_id: FromPath[UUID]) -> dict[str, str]:
    return {"status": await tasks.handle(task_id).astatus()}


@asynccontextmanager
async def database(web: Litestar) -> AsyncIterator[None]:
    async with asyncpg.create_pool(tasks.database_url) as pool:
        await pool.execute("create table if not exists orders (id serial primary key, item text)")
        web.state.pool = pool
        yield
    tasks.close()


web = Litestar([place_order, show_task], lifespan=[database])
