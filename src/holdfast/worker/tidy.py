"""Tidying: what claims leave behind because removing it at once would cost them."""

from holdfast.engine import limit
from holdfast.worker.duty import Ask


class SlotTidying:
    name = "slots"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        return 0.0 if ask(limit.tidy_slots()) else None
