"""Where each finding of health leads: to the tasks, queue, worker or schedule that it is about."""

from urllib.parse import quote

from holdfast.engine.health import HealthLine

_PAGES = {
    "oldest_due": "/tasks?status=pending&queue=",
    "unserved": "/tasks?status=pending&queue=",
    "delay_p50": "/tasks?queue=",
    "delay_p99": "/tasks?queue=",
    "failing_type": "/errors?type=",
    "paused_queue": "/queues",
    "lanes": "/queues",
    "held_limit": "/queues",
    "dead_events": "/outbox",
    "outbox": "/outbox",
    "orphaned_process": "/processes",
    "failing_supervisor": "/processes",
    "late_schedule": "/schedules",
    "missed_schedule": "/schedules",
    "overlapping_schedule": "/schedules",
    "repeated_schedule": "/schedules",
    "retention": "/tasks?status=succeeded",
    "workers": "/workers",
    "leader": "/workers",
    "expired_leases": "/tasks?status=running",
    "silent_worker": "/workers",
    "late_worker": "/workers",
    "lost_worker": "/workers",
}


def subject_link(line: HealthLine) -> str | None:
    """The path of the page that shows what the finding is about; None if no page does."""
    path = _PAGES.get(line.check_name)
    if path is None or not path.endswith("="):
        return path
    return None if line.subject is None else path + quote(line.subject, safe="")
