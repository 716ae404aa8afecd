"""A workflow: an order is charged, waits for an approval without a worker, and is shipped.

To run it:

    holdfast worker order_workflow:tasks              # in one terminal
    python order_workflow.py 7                        # in another: begins the order, or shows where it stands
    python order_workflow.py 7 yes                    # decides; a second decision changes nothing
"""

import sys
from datetime import timedelta

from pydantic import BaseModel

from holdfast import App, Context

tasks = App()  # DATABASE_URL, else an embedded PostgreSQL


class Decision(BaseModel):
    approved: bool


async def charge(order_id: int) -> str:
    return f"receipt-{order_id}"  # a bank would get the number of the order as its key


async def refund(receipt: str) -> None: ...


async def ship(order_id: int) -> str:
    return f"parcel-{order_id}"


@tasks.task("orders.fulfil")
async def fulfil(ctx: Context, order_id: int) -> str:
    receipt = await ctx.step(charge, order_id, retries=5, timeout=30)
    try:
        decision = await ctx.wait("decision", Decision, timeout=timedelta(days=2))
    except TimeoutError:
        decision = Decision(approved=False)
    if not decision.approved:
        await ctx.step(refund, receipt, retries=5)
        return "refunded"
    parcel: str = await ctx.step(ship, order_id, retries=5)
    return parcel


def begin(order_id: int) -> str:
    """The key makes it one run, however often this is called."""
    handle = fulfil.using(key=f"order-{order_id}").enqueue(order_id)
    return "begun" if handle.created else handle.info().status


def decide(order_id: int, *, approved: bool) -> str:
    """Answers kept, replayed, conflict or ended."""
    return fulfil.signal(f"order-{order_id}", "decision", Decision(approved=approved), key="decision")


if __name__ == "__main__":
    number, *decision = sys.argv[1:]
    print(decide(int(number), approved=decision == ["yes"]) if decision else begin(int(number)))
    tasks.close()
