"""Tidying: what claims and dispatchers leave behind because removing it at once would cost them."""

from holdfast.engine import limit, outbox
from holdfast.worker.duty import Ask


class SlotTidying:
    name = "slots"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        return 0.0 if ask(limit.tidy_slots()) else None


class LaneTidying:
    """Lanes that nobody uses any more: every claim would look at each. They go in two steps."""

    name = "lanes"
    interval = 5.0

    def run(self, ask: Ask) -> float | None:
        return 0.0 if ask(limit.tidy_lanes()) else None


class OutboxPruning:
    """Events that were delivered some time ago, and the record of those that were taken in."""

    name = "outbox"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        left = ask(outbox.prune_events()) + ask(outbox.prune_inbox())
        return 0.0 if left else None
