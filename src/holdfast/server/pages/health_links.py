"""Where each finding of health leads: to the tasks, queue, worker or schedule that it is about."""

from dataclasses import dataclass
from urllib.parse import quote

from holdfast._engine.health import HealthLine

PAGES: dict[str, str | None] = {
    "oldest_due": "/tasks?status=pending&queue={}",
    "unserved": "/tasks?status=pending&queue={}",
    "delay_p50": "/tasks?queue={}",
    "delay_p99": "/tasks?queue={}",
    "failing_type": "/errors?type={}",
    "failing_step": "/runs?type={}",
    "full_mailbox": "/tasks/{}",
    "troubled_run": "/tasks/{}",
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
    "chores": "/tasks?status=suspended",
    "silent_worker": "/workers/show?id={}",
    "late_worker": "/workers/show?id={}",
    "lost_worker": "/workers",
    "no_handler": "/tasks?type={}",
    "misplaced_schedule": None,  # pages show the schedules of the first shard
    # About the server or its logins, which no page shows.
    **dict.fromkeys(("clock", "oldest_snapshot", "hidden_sessions", "dead_rows", "notification_queue")),
    **dict.fromkeys(("transaction_ids", "size", "growth", "missing_grant")),
}
"""The path of the page of each check, with the subject in place of the braces."""


@dataclass(frozen=True, slots=True)
class HealthAct:
    """What the page Health can do about a finding: the form of another page."""

    path: str
    label: str
    field: str
    explain: str


_ACTS = {
    "paused_queue": HealthAct(
        "/queues/resume", "Resume", "queue", "Workers claim tasks from this queue again."
    ),
    "events_paused": HealthAct("/outbox/resume", "Resume", "name", "Events are sent again."),
}
_ABOUT_LIMITS = ("all_held_back", "oldest_held_back", "delay_under_limit")


def subject_act(line: HealthLine) -> HealthAct | None:
    """What can be done with a button; None if that takes a choice, or is about one of several shards."""
    return None if "shard" in line.facts else _ACTS.get(line.code)


def subject_link(line: HealthLine) -> str | None:
    """The path of the page that shows what the finding is about; None if no page does."""
    if line.code in _ABOUT_LIMITS and line.level != "green":
        return "/queues"
    path = PAGES.get(line.check_name)
    if path is None or "{}" not in path:
        return path
    return path.format(quote(line.name, safe="")) if line.name else None
