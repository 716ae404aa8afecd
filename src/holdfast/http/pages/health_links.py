"""Where each finding of health leads: to the tasks, queue, worker or schedule that it is about."""

from collections.abc import Collection
from urllib.parse import quote

from holdfast.engine.health import HealthLine

PAGES: dict[str, str | None] = {
    "oldest_due": "/tasks?status=pending&queue={}",
    "unserved": "/tasks?status=pending&queue={}",
    "delay_p50": "/tasks?queue={}",
    "delay_p99": "/tasks?queue={}",
    "failing_type": "/errors?type={}",
    "paused_queue": "/queues",
    "lanes": "/queues",
    "held_limit": "/queues",
    "dead_events": "/outbox/show?name={}",
    "outbox": "/outbox/show?name={}",
    "orphaned_process": "/processes/{}?state=trouble",
    "failing_supervisor": "/processes/{}?state=trouble",
    "late_schedule": "/schedules/show?name={}",
    "orphaned_schedule": "/schedules/show?name={}",
    "paused_schedule": "/schedules/show?name={}",
    "broken_schedule": "/schedules/show?name={}",
    "repeated_schedule": "/schedules",
    "retention": "/tasks",
    "workers": "/workers",
    "leader": "/workers",
    "expired_leases": "/tasks?status=running",
    "silent_worker": "/workers/show?id={}",
    "late_worker": "/workers/show?id={}",
    "lost_worker": "/workers",
    "misplaced_schedule": None,  # pages show the schedules of the first shard
    # About the server or its logins, which no page shows.
    **dict.fromkeys(("clock", "oldest_snapshot", "hidden_sessions", "dead_rows", "notification_queue")),
    **dict.fromkeys(("transaction_ids", "size", "growth", "missing_grant")),
}
"""The path of the page of each check, with the subject in place of the braces."""


def subject_link(line: HealthLine, shards: Collection[str] = ()) -> str | None:
    """The path of the page that shows what the finding is about; None if no page does.

    With shards, the subject begins with the name of one.
    """
    if "holdfast limits" in (line.advice or ""):  # the page of that command
        return "/queues"
    path = PAGES.get(line.check_name)
    if path is None or "{}" not in path:
        return path
    subject = line.subject or ""
    shard, _, rest = subject.partition(" ")
    subject = rest if shard in shards else subject
    return path.format(quote(subject, safe="")) if subject else None
