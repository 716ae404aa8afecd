"""FastAPI: a request writes an order, enqueues its shipping in the same transaction, and waits for it.

Run it so:

    holdfast worker fastapi_shop:tasks
    uvicorn fastapi_shop:api
    curl -X POST 'localhost:8000/orders?item=lamp'
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import App

tasks = App()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


class Shipment(BaseModel):
    order_id: int
    label: str


@tasks.task("shop.ship", timeout=30)
async def ship(order_id: int, item: str) -> Shipment:
    return Shipment(order_id=order_id, label=f"{item} for order {order_id}")


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(tasks.database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    api.state.sessions = async_sessionmaker(engine)
    yield
    await engine.dispose()
    tasks.close()


api = FastAPI(lifespan=lifespan)


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


@api.post("/orders")
async def place_order(item: str, session: Annotated[AsyncSession, Depends(open_session)]) -> Shipment:
    async with session.begin():
        order = Order(item=item)
        session.add(order)
        await session.flush()
        handle = await ship.using(tx=session).aenqueue(order.id, item)
    try:
        return await handle.aresult(timeout=20)
    except TimeoutError:
        raise HTTPException(202, f"see /tasks/{handle.task_id}") from None


@api.get("/tasks/{task_id}")
async def show_task(task_id: UUID) -> str:
    return await tasks.handle(task_id).astatus()
