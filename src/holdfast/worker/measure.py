"""A duty of the leader: write down once a minute how large everything is, so that health can tell growth."""

from holdfast.engine import fleet
from holdfast.worker.duty import Ask


class Measure:
    name = "measure"
    interval = 60.0

    def run(self, ask: Ask) -> float | None:
        ask(fleet.measure())
        return None
