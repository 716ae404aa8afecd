"""Installs the engine's schema. Later releases are installed after every `migrate`: see apps.py."""

from typing import Any, ClassVar

from django.db import migrations, models

from holdfast.contrib.django.schema import install_schema


def install(apps: Any, schema_editor: Any) -> None:
    del apps
    install_schema(schema_editor.connection.alias)


class Migration(migrations.Migration):
    initial = True
    atomic = False
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar = [
        migrations.RunPython(install, migrations.RunPython.noop, elidable=False),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("queue", models.TextField(primary_key=True, serialize=False)),
                ("due", models.BigIntegerField()),
                ("scheduled", models.BigIntegerField()),
                ("running", models.BigIntegerField()),
                ("live_workers", models.BigIntegerField()),
                ("oldest_due", models.DateTimeField(null=True)),
                ("paused_at", models.DateTimeField(null=True)),
                ("pause_reason", models.TextField(null=True)),
            ],
            options={
                "db_table": 'queues"."queue_status',
                "ordering": ("queue",),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("state", models.TextField()),
                ("type", models.TextField()),
                ("cron", models.TextField(null=True)),
                ("every", models.DurationField(null=True)),
                ("tz", models.TextField(null=True)),
                ("next_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(null=True)),
                ("declared_by", models.TextField(null=True)),
            ],
            options={
                "db_table": 'queues"."schedule_status',
                "ordering": ("name",),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("task_id", models.UUIDField(primary_key=True, serialize=False)),
                ("type", models.TextField()),
                ("queue", models.TextField()),
                ("status", models.TextField()),
                ("priority", models.IntegerField()),
                ("attempt", models.IntegerField()),
                ("max_attempts", models.IntegerField()),
                ("payload", models.JSONField()),
                ("result", models.JSONField(null=True)),
                ("last_error", models.TextField(null=True)),
                ("idempotency_key", models.TextField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("worker_id", models.TextField(null=True)),
                ("reason", models.TextField(null=True)),
                ("enqueued_by", models.TextField()),
                ("metadata", models.JSONField(null=True)),
                ("run_at", models.DateTimeField()),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": 'queues"."task_status',
                "ordering": ("-task_id",),
                "permissions": [
                    ("operate_task", "Can retry and cancel tasks"),
                    ("view_payload", "Can view the arguments and results of tasks"),
                ],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("worker_id", models.TextField(primary_key=True, serialize=False)),
                ("state", models.TextField()),
                ("hostname", models.TextField()),
                ("pid", models.IntegerField()),
                ("version", models.TextField()),
                ("concurrency", models.IntegerField()),
                ("in_flight", models.IntegerField()),
                ("leader", models.BooleanField()),
                ("started_at", models.DateTimeField()),
                ("last_heartbeat", models.DateTimeField()),
            ],
            options={
                "db_table": 'queues"."worker_status',
                "ordering": ("-started_at",),
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
    ]
