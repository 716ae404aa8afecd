"""SQLAlchemy: an order and the task that ships it are written in one transaction, or neither is.

To run it:

    holdfast worker sqlalchemy_shop:tasks
    python sqlalchemy_shop.py "a lamp"
"""

import sys

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import App, Handle

tasks = App()


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@tasks.task("shop.ship")
def ship(order_id: int, item: str) -> str:
    return f"order {order_id}: {item} is on its way"


def connect() -> Engine:
    engine = create_engine(tasks.database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    Base.metadata.create_all(engine)
    return engine


def place_order(session: Session, item: str) -> Handle[str]:
    order = Order(item=item)
    session.add(order)
    session.flush()  # gives the order its id
    return ship.using(tx=session).enqueue(order.id, item)


if __name__ == "__main__":
    with Session(connect()) as session, session.begin():
        handle = place_order(session, sys.argv[1])
    print(handle.result(timeout=60))
    tasks.close()
