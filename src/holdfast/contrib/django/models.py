"""Views of the engine as models, for the admin and to read tasks with the ORM. They have no tables."""

from typing import ClassVar

from django.db import models


class Task(models.Model):
    """A task and its status. Read only: tasks are changed by calls to the engine."""

    task_id = models.UUIDField(primary_key=True)
    type = models.TextField()
    queue = models.TextField()
    status = models.TextField()
    priority = models.IntegerField()
    attempt = models.IntegerField()
    max_attempts = models.IntegerField()
    payload = models.JSONField()
    result = models.JSONField(null=True)
    last_error = models.TextField(null=True)  # noqa: DJ001 - the view has null
    idempotency_key = models.TextField(null=True)  # noqa: DJ001 - as above
    concurrency_key = models.TextField(null=True)  # noqa: DJ001 - as above
    worker_id = models.TextField(null=True)  # noqa: DJ001 - as above
    reason = models.TextField(null=True)  # noqa: DJ001 - as above
    enqueued_by = models.TextField()
    metadata = models.JSONField(null=True)
    run_at = models.DateTimeField()
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = 'queues"."task_status'
        default_permissions = ("view",)
        permissions: ClassVar = [
            ("operate_task", "Can retry and cancel tasks"),
            ("view_payload", "Can view the arguments and results of tasks"),
        ]
        ordering = ("-task_id",)

    def __str__(self) -> str:
        return f"{self.type} {self.task_id}"


class Schedule(models.Model):
    """A schedule, and when it fires next."""

    name = models.TextField(primary_key=True)
    state = models.TextField()
    type = models.TextField()
    cron = models.TextField(null=True)  # noqa: DJ001 - as above
    every = models.DurationField(null=True)
    tz = models.TextField(null=True)  # noqa: DJ001 - as above
    next_at = models.DateTimeField(null=True)
    problem = models.TextField(null=True)  # noqa: DJ001 - as above
    declared_by = models.TextField(null=True)  # noqa: DJ001 - as above

    class Meta:
        managed = False
        db_table = 'queues"."schedule_status'
        default_permissions = ("view",)
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)


class Queue(models.Model):
    """A queue, with its waiting and running tasks."""

    queue = models.TextField(primary_key=True)
    due = models.BigIntegerField()
    scheduled = models.BigIntegerField()
    running = models.BigIntegerField()
    live_workers = models.BigIntegerField()
    oldest_due = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    pause_reason = models.TextField(null=True)  # noqa: DJ001 - as above

    class Meta:
        managed = False
        db_table = 'queues"."queue_status'
        default_permissions = ("view",)
        ordering = ("queue",)

    def __str__(self) -> str:
        return str(self.queue)


class Worker(models.Model):
    """A worker, and when it was last heard."""

    worker_id = models.TextField(primary_key=True)
    state = models.TextField()
    hostname = models.TextField()
    pid = models.IntegerField()
    version = models.TextField()
    concurrency = models.IntegerField()
    in_flight = models.IntegerField()
    leader = models.BooleanField()
    started_at = models.DateTimeField()
    last_heartbeat = models.DateTimeField()

    class Meta:
        managed = False
        db_table = 'queues"."worker_status'
        default_permissions = ("view",)
        ordering = ("-started_at",)

    def __str__(self) -> str:
        return str(self.worker_id)
