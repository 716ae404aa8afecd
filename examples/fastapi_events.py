"""FastAPI: events of another service come in as signed webhooks, and each becomes one task.

The sender repeats what did not succeed, so the same event may come twice. It is taken in and
its task enqueued in one transaction: both happen, once, or neither does.

To run it:

    export ORDERS_SECRET=whsec_...          # shown by `holdfast events subscribe` of the sender
    holdfast worker fastapi_events:tasks
    uvicorn fastapi_events:api
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from fastapi import FastAPI, HTTPException, Request

from holdfast import App
from holdfast.errors import InvalidArgument, InvalidSignature
from holdfast.events import areceive, verify

tasks = App()


@tasks.task("shop.ship")
async def ship(order: int) -> str:
    return f"order {order} is on its way"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    tasks.close()


api = FastAPI(lifespan=lifespan)


@api.post("/events", status_code=204)
async def take_in(request: Request) -> None:
    try:
        event = verify(request.headers, await request.body(), os.environ["ORDERS_SECRET"])
    except InvalidSignature as error:
        raise HTTPException(401, str(error)) from error
    except InvalidArgument as error:
        raise HTTPException(400, str(error)) from error
    # A connection of its own for each event keeps the example short; an application has a pool.
    async with await psycopg.AsyncConnection.connect(tasks.database_url) as connection:
        if await areceive(event, tx=connection) and event.type == "order.created":
            await ship.using(tx=connection).aenqueue(event.data["order"])
