"""What the leader does for the whole fleet."""

from holdfast.worker.duty import Duty
from holdfast.worker.logs import Log
from holdfast.worker.measure import Measure
from holdfast.worker.prune import Retention
from holdfast.worker.recover import Recovery
from holdfast.worker.repair import ProcessPruning, ProcessRepair
from holdfast.worker.schedules import FireSchedules, PruneFirings
from holdfast.worker.tidy import LaneTidying, OutboxPruning, SlotTidying
from holdfast.worker.unserved import Unserved


def build_duties(log: Log, unserved: Unserved) -> tuple[Duty, ...]:
    return (
        Recovery(log),
        FireSchedules(log),
        PruneFirings(),
        Measure(),
        Retention(log),
        SlotTidying(),
        LaneTidying(),
        OutboxPruning(),
        unserved,
        ProcessRepair(log),
        ProcessPruning(),
    )
