"""The admin section: lists to read, and retry and cancel as actions."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from holdfast._connections.transaction import run_in
from holdfast._engine import Statement, access, tasks
from holdfast._engine.tasks import STATUSES, TaskFilter
from holdfast.contrib.django.client import default_alias
from holdfast.contrib.django.conf import read_conf
from holdfast.contrib.django.models import Queue, Schedule, Task, Worker
from holdfast.errors import HoldfastError

NEWEST = 1000
"""How many tasks the list shows, so that a page never counts or sorts millions."""

MAX_PAGES = 5


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows of a view, which cannot be added, changed or deleted here."""

    actions: tuple[str, ...] | None = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(default_alias())

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class _Filter(admin.SimpleListFilter):
    """Chosen in `TaskAdmin.get_queryset`, which asks the engine for the newest that match."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset


class StatusFilter(_Filter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status, status) for status in STATUSES]


class QueueFilter(_Filter):
    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = Queue.objects.using(default_alias()).values_list("queue", flat=True)[:100]
        return [(name, name) for name in names]


@admin.register(Task)
class TaskAdmin(ReadOnlyAdmin):
    list_display = ("task_id", "type", "queue", "status", "attempt", "run_at", "finished_at", "last_error")
    list_filter = (StatusFilter, QueueFilter)
    search_fields = ("type",)
    search_help_text = "An id, an idempotency key, part of a type, or part of an error."
    show_full_result_count = False
    actions = ("retry", "cancel")
    fields = (
        *(
            "task_id",
            "type",
            "queue",
            "status",
            "reason",
            "last_error",
            "priority",
            "attempt",
            "max_attempts",
        ),
        *("idempotency_key", "concurrency_key", "worker_id", "enqueued_by", "created_at", "run_at"),
        *("started_at", "finished_at"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        matching = TaskFilter(status=_choice(request, "status"), queue=_choice(request, "queue"))
        return super().get_queryset(request).filter(task_id__in=_newest(matching))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term:
            return queryset, False
        found = _engine(tasks.list_tasks(TaskFilter(words=search_term[:500]), None, NEWEST))
        everything = super().get_queryset(request)
        return everything.filter(task_id__in=[one.task_id for one in found]), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        try:
            return super().get_queryset(request).filter(task_id=UUID(object_id)).first()
        except ValueError:
            return None

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        shown: tuple[str, ...] = self.list_display
        return (*shown, "dashboard") if read_conf().dashboard_url else shown

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        shown: tuple[str, ...] = self.fields
        if request.user.has_perm("holdfast.view_payload"):
            shown = (*shown, "payload", "result", "metadata")
        return (*shown, "dashboard") if read_conf().dashboard_url else shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_fields(request, obj)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("holdfast.operate_task"))

    @admin.display(description="dashboard")
    def dashboard(self, task: Any) -> str:
        root = str(read_conf().dashboard_url or "").rstrip("/")
        return str(format_html('<a href="{}/tasks/{}">Open in the dashboard</a>', root, task.task_id))

    @admin.action(description="Retry the selected tasks", permissions=["operate"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._act(request, queryset, "retried", tasks.retry)

    @admin.action(description="Cancel the selected tasks", permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._act(request, queryset, "cancelled", tasks.cancel)

    def _act(
        self,
        request: HttpRequest,
        chosen: Iterable[Any],
        done: str,
        act: Callable[[UUID, str], Statement[Any]],
    ) -> None:
        """Each task by itself: one that cannot be changed does not keep the others from it."""
        count = 0
        for task in chosen:
            try:
                with transaction.atomic(using=default_alias()):
                    _engine(access.act_for(f"Django user {request.user.get_username()}"))
                    _engine(act(task.pk, "in Django's admin"))
                count += 1
            except HoldfastError as error:
                self.message_user(request, str(error), messages.ERROR)
        if count:
            self.message_user(request, f"{count} {'task was' if count == 1 else 'tasks were'} {done}.")


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "type", "cron", "every", "tz", "next_at", "problem")


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin):
    list_display = ("queue", "due", "scheduled", "running", "live_workers", "oldest_due", "paused_at")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    list_display = ("worker_id", "state", "in_flight", "concurrency", "leader", "hostname", "last_heartbeat")


def _engine(statement: Statement[Any]) -> Any:
    return run_in(default_alias(), statement, "admin")


def _newest(matching: TaskFilter) -> list[UUID]:
    """A page of the engine may be short although there are more tasks, so a few pages are read."""
    found: list[UUID] = []
    before: UUID | None = None
    for _ in range(MAX_PAGES):
        page = _engine(tasks.find_tasks(matching, before, NEWEST))
        found += page.task_ids
        before = page.next
        if before is None or len(found) >= NEWEST:
            break
    return found[:NEWEST]


def _choice(request: HttpRequest, name: str) -> str | None:
    given = request.GET.get(name)
    return given if name != "status" or given in STATUSES else None
