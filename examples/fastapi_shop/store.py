"""A store: an order, its shipment and its e-mail are one transaction, and its page waits for the shipment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, FastAPI, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import App, Context, messages
from holdfast.contrib.fastapi import Holdfast, InTransaction, in_transaction
from holdfast.errors import InvalidArgument

tasks = App(name="shop", sends_messages=True)
holdfast = Holdfast(tasks)  # the dashboard, the API and waiting, below /holdfast


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    email: Mapped[str]
    task_id: Mapped[UUID | None]


# The tasks. A worker runs them: holdfast dev store:tasks


@tasks.task("shop.ship", timeout=30)
async def ship(ctx: Context, order_id: int, item: str) -> str:
    for done, note in enumerate(("picked", "packed", "labelled"), start=1):
        ctx.progress(done, 3, f"{item}: {note}")
    return f"Order {order_id}: {item} is on its way."


@tasks.schedule("0 6 * * *", tz="Europe/Berlin")
@tasks.task("shop.report")
async def report() -> int:
    """Counts the orders, every morning."""
    engine = create_async_engine(sqlalchemy_url())
    async with AsyncSession(engine) as session:
        count = await session.scalar(select(func.count()).select_from(Order))
    await engine.dispose()
    return count or 0


# The web application: uvicorn store:web


def sqlalchemy_url() -> str:
    return tasks.database_url.replace("postgresql:", "postgresql+psycopg:", 1)


@asynccontextmanager
async def database(web: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(sqlalchemy_url())
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    web.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
    yield
    await engine.dispose()


web = FastAPI(lifespan=holdfast.lifespan_with(database))
holdfast.mount(web)


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    async with request.app.state.sessions() as session:
        yield session


Session = Annotated[AsyncSession, Depends(open_session)]
Queue = Annotated[InTransaction, Depends(in_transaction(open_session))]


@web.get("/")
async def show_form(request: Request) -> HTMLResponse:
    return HTMLResponse(
        f"""<!doctype html><html lang="en"><title>Store</title><h1>Store</h1>
        <form method="post" action="{request.url_for("place_order").path}">
        <label>Item <input name="item" required></label>
        <label>E-mail <input name="email" type="email" required></label>
        <button>Order</button></form></html>"""
    )


@web.post("/orders")
async def place_order(
    item: Annotated[str, Form()],
    email: Annotated[str, Form()],
    request: Request,
    session: Session,
    queue: Queue,
) -> RedirectResponse:
    async with session.begin():  # committed before the page waits
        order = Order(item=item, email=email)
        session.add(order)
        await session.flush()
        shipment = await queue(ship, key=f"order-{order.id}").aenqueue(order.id, item)
        order.task_id = shipment.task_id
        await messages.asend_email(
            to=email, subject="Your order", text=f"Thank you for ordering {item}.", tx=session, app=tasks
        )
    return RedirectResponse(request.url_for("show_order", order_id=order.id).path, 303)


@web.exception_handler(InvalidArgument)
async def explain(_: Request, error: Exception) -> JSONResponse:
    """Such as an invalid address: the transaction was rolled back."""
    return JSONResponse({"detail": str(error)}, 422)


@web.get("/orders/{order_id}")
async def show_order(order_id: int, request: Request, session: Session) -> HTMLResponse:
    order = await session.get(Order, order_id)
    if order is None or order.task_id is None:
        raise HTTPException(404, "There is no such order.")
    return holdfast.waiting_page(request, tasks.handle(order.task_id), title=f"Order {order_id}")
