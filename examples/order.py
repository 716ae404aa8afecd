"""The program of the README: an order and its workflow are committed in one transaction.

To run it:

    holdfast dev examples.order:app
    python examples/order.py
"""

from itertools import count

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import App, Context

app = App()  # DATABASE_URL, else an embedded PostgreSQL
calls = count(1)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


async def charge(order_id: int) -> str:
    if next(calls) % 3:
        raise ConnectionError("the bank does not respond")
    return f"receipt for order {order_id}"


async def refund(receipt: str) -> str:
    return f"refunded: {receipt}"


@app.task("orders.fulfil")
async def fulfil(ctx: Context, order_id: int) -> str:
    receipt = await ctx.step(charge, order_id, retries=10)  # once recorded, it does not run again
    approved = await ctx.wait("approval", bool)  # for days, without occupying a worker
    return receipt if approved else await ctx.step(refund, receipt)


def place_order(session: Session, item: str) -> str:
    order = Order(item=item)
    session.add(order)
    session.flush()  # gives the order its id
    task = fulfil.using(tx=session).enqueue(order.id)  # committed with the order, or not at all
    return f"order {order.id} is task {task.task_id}"


if __name__ == "__main__":
    engine = create_engine(app.database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    Base.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        print(place_order(session, "a lamp"))
    app.close()
