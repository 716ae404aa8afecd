"""Every setting, declared once, in groups: its name, its values, its default and what it means.

The environment variable of a setting is HOLDFAST_ and its name, unless its declaration has another.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

from holdfast.errors import ConfigurationError, did_you_mean
from holdfast.settings.commands import Command, read_commands
from holdfast.settings.values import (
    AbsolutePath,
    DatabaseUrl,
    Duration,
    Hosts,
    HttpUrl,
    Names,
    Networks,
    Prefixes,
    Size,
    between,
    check_link,
    check_secrets,
    check_web_url,
    read_shards,
)


@dataclass(frozen=True, slots=True)
class Variable:
    """The environment variable of a setting, if it does not begin with HOLDFAST_."""

    name: str


class SettingsGroup(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class DatabaseSettings(SettingsGroup):
    """Where the database is, and what it consists of."""

    database_url: Annotated[DatabaseUrl | None, Variable("DATABASE_URL")] = Field(
        default=None,
        description="Address of the database. Without it, an embedded PostgreSQL is started.",
    )
    single_login: bool = Field(
        default=False,
        description="Whether a migration installs without roles, so that its login owns everything.",
    )
    without: Names = Field(
        default=(),
        description="Units that a new database does without, separated by commas: messages, events, web.",
    )
    home: AbsolutePath = Field(
        default=Path(".holdfast"),
        description="Directory of the embedded PostgreSQL.",
    )
    call_timeout: Annotated[Duration, between("1s", "1h")] = Field(
        default=timedelta(seconds=30),
        description="How long a call of the application waits for a free connection, and for each answer.",
    )
    shards: Annotated[dict[str, DatabaseUrl], BeforeValidator(read_shards)] = Field(
        default_factory=dict,
        description="Names and addresses of the shards, in an order that never changes: s00=URL s01=URL.",
    )

    def shard_url(self, name: str) -> str:
        """The address of a shard."""
        if name not in self.shards:
            known = did_you_mean(name, self.shards) if self.shards else ": HOLDFAST_SHARDS is not set"
            raise ConfigurationError(f"there is no shard {name!r}{known}")
        return self.shards[name]


class WorkerSettings(SettingsGroup):
    """What a worker serves, how long it waits, and how it logs."""

    app_name: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None,
        description="Name of the application, which owns its schedules. Overridden by App(name=…).",
    )
    worker_id: Annotated[
        Annotated[str, Field(min_length=1, max_length=150)] | None, Variable("WORKER_ID")
    ] = Field(
        default=None,
        description="Name of the worker; the process start is added to it. Without it, the host's name.",
    )
    worker_queues: Annotated[Names, Variable("WORKER_QUEUES")] = Field(
        default=(),
        description="Queues that the worker serves, separated by commas. By default those of its tasks.",
    )
    worker_type_prefixes: Annotated[Names, Variable("WORKER_TYPE_PREFIXES")] = Field(
        default=(),
        description="Prefixes of the task types that the worker serves, separated by commas.",
    )
    worker_concurrency: Annotated[int, Field(ge=1, le=10_000), Variable("WORKER_CONCURRENCY")] = Field(
        default=10,
        description="How many tasks the worker runs at once.",
    )
    worker_timeout: Annotated[Duration, between("5s", "1d"), Variable("WORKER_TIMEOUT")] = Field(
        default=timedelta(seconds=60),
        description="How long a worker may be silent before it counts as dead.",
    )
    worker_log_tasks: Annotated[Literal["auto", "always", "never"], Variable("WORKER_LOG_TASKS")] = Field(
        default="auto",
        description="Whether the worker logs each finished task; auto does so in the console format.",
    )
    poll_interval: Annotated[Duration, between("10ms", "1h"), Variable("POLL_INTERVAL")] = Field(
        default=timedelta(seconds=5),
        description="How long an idle worker waits for a wake-up before it polls.",
    )
    lease: Annotated[Duration, between("1s", "1d")] = Field(
        default=timedelta(seconds=30),
        description="How long a task is held without a heartbeat, and an event while it is sent.",
    )
    heartbeat: Annotated[Duration, between("100ms", "1h")] = Field(
        default=timedelta(seconds=10),
        description="How often the worker renews its leases. At most half a lease.",
    )
    term: Annotated[Duration, between("1s", "1h")] = Field(
        default=timedelta(seconds=15),
        description="How long a worker is the leader unless it renews its term.",
    )
    grace: Annotated[Duration, between("0s", "1d")] = Field(
        default=timedelta(seconds=30),
        description="How long running tasks may continue after the worker was asked to stop.",
    )
    handler_grace: Annotated[Duration, between("0s", "30d")] = Field(
        default=timedelta(minutes=10),
        description="How long a task waits for a worker with its handler before it fails.",
    )
    function_connections: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="How many database functions the worker runs at once, and how many for messages. "
        "Without it, as many as tasks, up to 50.",
    )
    record_step_arguments: bool = Field(
        default=True,
        description="Whether the arguments of steps are recorded, up to 2 KiB of each, beside their results.",
    )
    log_format: Literal["console", "json"] | None = Field(
        default=None,
        description="How the worker logs: for people, or for machines. Without it, as the terminal tells.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="From which level on the worker logs; debug has a line for every task.",
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="Port of 127.0.0.1 on which the worker serves Prometheus metrics; 0 takes a free one.",
    )


class IsolationSettings(SettingsGroup):
    """Child processes and external programs."""

    process_pool: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=2,
        description="How many child processes the worker keeps warm for tasks of the executor process.",
    )
    process_runs: Annotated[int, Field(ge=1)] = Field(
        default=1000,
        description="After how many runs a child process is replaced.",
    )
    process_memory: Size = Field(
        default=512 * 1024 * 1024,
        description="A child process that holds more memory than this after a run is replaced.",
    )
    process_user: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Account that child processes run as; only root can give it.",
    )
    process_env: Names = Field(
        default=(),
        description="Variables that child processes get besides the usual: NAME, PREFIX_* or NAME=value.",
    )
    kill_grace: Annotated[Duration, between("0s", "1h")] = Field(
        default=timedelta(seconds=5),
        description="How long a run that was asked to end may take before it is killed.",
    )
    output_limit: Size = Field(
        default=16 * 1024 * 1024,
        description="How much a run in a process of its own may print before it is ended.",
    )
    commands: Annotated[dict[str, Command], BeforeValidator(read_commands)] = Field(
        default_factory=dict,
        description="External programs that run tasks of the executor command, by name.",
    )


class EventSettings(SettingsGroup):
    """Where the dispatcher sends events."""

    outbox_directory: AbsolutePath | None = Field(
        default=None,
        description="Where the dispatcher writes the files of file sinks. Without it, outbox below the home.",
    )
    outbox_allow: Hosts = Field(
        default=(),
        description="Hosts and networks that events may go to though they are internal, or without TLS.",
    )


class EmailSettings(SettingsGroup):
    """Providers of e-mail."""

    email_provider: Annotated[str, Field(min_length=1)] = Field(
        default="mailbox",
        description="Provider of e-mail: mailbox (in the database), resend, smtp, or one of a package.",
    )
    email_sender: str | None = Field(
        default=None,
        description="Default sender of e-mail: Shop <shop@example.com>.",
    )
    resend_api_key: SecretStr | None = Field(default=None, description="Key of the Resend account.")
    resend_webhook_secret: SecretStr | None = Field(
        default=None,
        description="Signing secret of the webhook at Resend that reports deliveries: whsec_….",
    )
    resend_url: HttpUrl = Field(default="https://api.resend.com", description="Where Resend's API is.")
    smtp_host: str | None = Field(default=None, description="Host of the mail server.")
    smtp_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="Port of the mail server. Without it, 587 for starttls, 465 for tls, 25 for none.",
    )
    smtp_security: Literal["starttls", "tls", "none"] = Field(
        default="starttls",
        description="How the way to the mail server is encrypted; none only to this machine itself.",
    )
    smtp_username: str | None = Field(default=None, description="Login at the mail server.")
    smtp_password: SecretStr | None = Field(default=None, description="Password of that login.")
    smtp_ca_file: AbsolutePath | None = Field(
        default=None,
        description="Certificates that the mail server's is checked against, instead of the system's.",
    )
    send_timeout: Annotated[Duration, between("1s", "10m")] = Field(
        default=timedelta(seconds=30),
        description="How long a provider may take for one message.",
    )
    templates: AbsolutePath = Field(
        default=Path("templates"),
        description="Where the templates of messages are.",
    )


class SmsSettings(SettingsGroup):
    """Providers of text messages."""

    sms_provider: Annotated[str, Field(min_length=1)] = Field(
        default="mailbox",
        description="Provider of text messages: mailbox (in the database), twilio, or one of a package.",
    )
    sms_sender: str | None = Field(
        default=None,
        description="Default sender of text messages: a number, or a name where allowed.",
    )
    sms_countries: Prefixes = Field(
        default=(),
        description="Beginnings of the numbers that may be texted, separated by commas: +49,+43.",
    )
    twilio_account_sid: str | None = Field(default=None, description="Account at Twilio.")
    twilio_auth_token: SecretStr | None = Field(default=None, description="Secret of that account.")
    twilio_status_callback: HttpUrl | None = Field(
        default=None,
        description="Where Twilio reports deliveries: https://…/v1/deliveries/twilio, as others reach it.",
    )
    twilio_url: HttpUrl = Field(default="https://api.twilio.com", description="Where Twilio's API is.")


class WebSettings(SettingsGroup):
    """How the HTTP server is reached, and what it shows."""

    web_host: Annotated[str, Field(min_length=1)] = Field(
        default="127.0.0.1",
        description="Address on which `holdfast serve` listens. A public one needs hosts and TLS or proxies.",
    )
    web_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8420,
        description="Port on which `holdfast serve` listens; 0 takes a free one.",
    )
    web_url: Annotated[str, AfterValidator(check_web_url)] | None = Field(
        default=None,
        description="Where others find `holdfast serve`: how the addresses of `handle.wait_url` begin.",
    )
    web_hosts: Names = Field(
        default=(),
        description="Names under which `holdfast serve` may be asked for, separated by commas.",
    )
    web_proxies: Networks = Field(
        default=(),
        description="Addresses of the proxies that do TLS in front of `holdfast serve`, separated by commas.",
    )
    web_secret: Annotated[SecretStr | None, AfterValidator(check_secrets)] = Field(
        default=None,
        description="Signs tickets to wait for a task; of several, the first signs and all are accepted.",
    )
    web_values: Literal["auto", "shown", "hidden"] = Field(
        default="auto",
        description="Whether the HTTP server shows payloads, results and error messages without being asked. "
        "auto: only if it listens on this machine alone, without a proxy.",
    )
    web_name: Annotated[str, Field(min_length=1, max_length=60)] | None = Field(
        default=None,
        description="Name of the application, on the pages of links that people answer (`ctx.callback`).",
    )
    trace_url: Annotated[str, AfterValidator(check_link("trace_id"))] | None = Field(
        default=None,
        description="Where the dashboard links to the trace of a task: an address with {trace_id} in it.",
    )
    log_url: Annotated[str, AfterValidator(check_link("task_id"))] | None = Field(
        default=None,
        description="Where the dashboard links to the log lines of a task: an address with {task_id} in it.",
    )
    web_max_waits: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=5000,
        description="How many may wait at once on one process of `holdfast serve`.",
    )
    web_max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=10_000,
        description="How many connections `holdfast serve` keeps open, if its open files are enough.",
    )

    @property
    def web_secrets(self) -> tuple[str, ...]:
        """The first signs, all are accepted."""
        return () if self.web_secret is None else tuple(self.web_secret.get_secret_value().split(","))
