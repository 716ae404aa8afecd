"""Settings, from three sources of growing weight.

The environment, then `[tool.holdfast]` in the pyproject.toml of the working directory, then arguments.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
)

from holdfast.errors import ConfigurationError
from holdfast.resources import Resources, parse_size

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?|\.\d+)\s*(?P<unit>ms|s|m|h|d)?", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", re.ASCII)
_PREFIX = re.compile(r"\+[1-9][0-9]{0,14}", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
LEAST_SECRET = 32
WITHHELD = "HOLDFAST_WITHHELD"
"""Names the variables that a child process of a worker was not given, so that it can say so."""
_USERINFO = re.compile(r"[^/\s]*@")


def parse_duration(value: object) -> timedelta:
    """Seconds as a number, or a number with a unit: 500ms, 30s, 5m, 2h, 7d."""
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError("give seconds (30, 0.5) or a number with a unit (500ms, 30s, 5m, 2h, 7d)")
    seconds = float(match["number"]) * _SECONDS[match["unit"] or "s"]
    if not math.isfinite(seconds) or seconds >= timedelta.max.total_seconds():
        raise ValueError("give a duration that is shorter than a lifetime")
    return timedelta(seconds=seconds)


def _check_database_url(value: str) -> str:
    try:
        found = conninfo_to_dict(value)
    except ProgrammingError:
        raise ValueError("give a PostgreSQL address such as postgresql://user@host:5432/database") from None
    # Misread pieces of a password would become a host or a port, and be shown when the connection fails.
    before_query = value.partition("?")[0]
    ports = str(found.get("port") or "").split(",")
    if "://" in value and (before_query.count("@") > 1 or not all(re.fullmatch(r"\d*", p) for p in ports)):
        raise ValueError("write @ in a user name or password as %40, : as %3A and / as %2F")
    return value


def _check_web_url(value: str) -> str:
    if re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", value) is None:
        raise ValueError("give an address such as https://tasks.example.com")
    return value.rstrip("/")


def _check_secrets(value: SecretStr | None) -> SecretStr | None:
    if value and any(len(secret) < LEAST_SECRET for secret in value.get_secret_value().split(",")):
        raise ValueError(
            f"give {LEAST_SECRET} characters or more that nobody can guess: openssl rand -hex 32"
        )
    return value


def split_names(value: object) -> object:
    """Names separated by commas, as an environment variable has them."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def between(least: str, most: str) -> AfterValidator:
    """Bounds that are named in the refusal."""
    low, high = parse_duration(least), parse_duration(most)

    def check(value: timedelta) -> timedelta:
        if not low <= value <= high:
            raise ValueError(f"give a duration between {least} and {most}")
        return value

    return AfterValidator(check)


def _check_http_url(value: str) -> str:
    """Secrets go there: in the clear only to this machine itself."""
    parts = urlsplit(value)
    if not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError("give an address such as https://api.example.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("give an address that begins with https://")
    return value.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether this is the machine itself, so that nobody is on the way."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_prefixes(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _PREFIX.fullmatch(value):
            raise ValueError("give beginnings of numbers such as +49 or +1212, separated by commas")
    return values


def _check_networks(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _is_network(value):
            raise ValueError("give addresses or networks such as 10.0.0.7 or 10.0.0.0/8")
    return values


def _check_hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not _is_network(value) and not _HOST.fullmatch(value):
            raise ValueError(
                "give hosts, addresses or networks such as nats.internal,10.0.0.0/8, separated by commas"
            )
    return values


def _is_network(value: str) -> bool:
    try:
        ip_network(value, strict=False)
    except ValueError:
        return False
    return True


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Size = Annotated[int, BeforeValidator(parse_size)]
Names = Annotated[tuple[str, ...], BeforeValidator(split_names)]
Networks = Annotated[Names, AfterValidator(_check_networks)]
Prefixes = Annotated[Names, AfterValidator(_check_prefixes)]
Hosts = Annotated[Names, AfterValidator(_check_hosts)]
HttpUrl = Annotated[str, AfterValidator(_check_http_url)]
DatabaseUrl = Annotated[str, AfterValidator(_check_database_url)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]


# Names that people already use for this. Every other variable begins with HOLDFAST_.
_UNPREFIXED = {
    "database_url",
    "worker_id",
    "poll_interval",
    "worker_type_prefixes",
    "worker_queues",
    "worker_concurrency",
    "worker_timeout",
    "worker_log_tasks",
}


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return name.upper() if name in _UNPREFIXED else f"HOLDFAST_{name.upper()}"


class Command(BaseModel):
    """An external program that runs tasks: an entry of `[tool.holdfast.commands]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    types: Annotated[Names, Field(min_length=1)]
    environment: Names = ()
    directory: AbsolutePath | None = None
    timeout: Annotated[Duration, between("1ms", "30d")] | None = None
    cpu: Annotated[Duration, between("1s", "30d")] | None = None
    memory: Size | None = None
    files: Annotated[int, Field(ge=3)] | None = None
    processes: Annotated[int, Field(ge=1)] | None = None
    file_size: Size | None = None
    user: Annotated[str, Field(min_length=1)] | None = None

    @property
    def resources(self) -> Resources:
        return Resources(
            cpu=None if self.cpu is None else self.cpu.total_seconds(),
            memory=self.memory,
            files=self.files,
            processes=self.processes,
            file_size=self.file_size,
        )

    def suits(self, task_type: str) -> int:
        """How well it fits a type: the length of the entry that names it or its beginning, else 0."""
        fitting = [
            name
            for name in self.types
            if name == task_type or (name.endswith((".", ":")) and task_type.startswith(name))
        ]
        return max(map(len, fitting), default=0)


def _read_commands(value: object) -> object:
    """As a table of TOML, or as JSON, as an environment variable has it."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("give a JSON object of commands") from None


class _Environment(PydanticBaseSettingsSource):
    """Only the exact variable, unless empty: the stock source would also take `HOME` for `home`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[str | None, str, bool]:
        del field
        return os.environ.get(variable_of(field_name)) or None, field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {name: self.get_field_value(field, name)[0] for name, field in Settings.model_fields.items()}
        return {name: value for name, value in found.items() if value is not None}


class Settings(BaseSettings):
    """Everything that can be set, declared once. Build it with `load`."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        pyproject_toml_table_header=("tool", "holdfast"),
        validate_default=True,
    )

    database_url: DatabaseUrl | None = Field(
        default=None,
        description="Where the work is kept. Without it, an embedded PostgreSQL is started.",
    )
    home: AbsolutePath = Field(
        default=Path(".holdfast"),
        description="Where the embedded PostgreSQL keeps its data.",
    )
    worker_id: Annotated[str, Field(min_length=1, max_length=150)] | None = Field(
        default=None,
        description="Name of the worker; the process start is added to it. Without it, the host's name.",
    )
    worker_queues: Names = Field(
        default=(),
        description="Queues that the worker serves, separated by commas. By default those of its tasks.",
    )
    worker_type_prefixes: Names = Field(
        default=(),
        description="Prefixes of the task types that the worker serves, separated by commas.",
    )
    worker_concurrency: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=10,
        description="How many tasks the worker runs at once.",
    )
    worker_timeout: Annotated[Duration, between("5s", "1d")] = Field(
        default=timedelta(seconds=60),
        description="How long a worker may be silent before it counts as dead.",
    )
    worker_log_tasks: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Whether the worker logs each finished task; auto does so in the console format.",
    )
    poll_interval: Annotated[Duration, between("10ms", "1h")] = Field(
        default=timedelta(seconds=2),
        description="How long an idle worker waits for a wake-up before it looks by itself.",
    )
    lease: Annotated[Duration, between("1s", "1d")] = Field(
        default=timedelta(seconds=30),
        description="How long a task is held without a heartbeat, and an event while it is sent.",
    )
    heartbeat: Annotated[Duration, between("100ms", "1h")] = Field(
        default=timedelta(seconds=10),
        description="How often the worker prolongs its leases. At most half a lease.",
    )
    term: Annotated[Duration, between("1s", "1h")] = Field(
        default=timedelta(seconds=15),
        description="For how long a worker that leads the fleet does so unless it goes on saying so.",
    )
    grace: Annotated[Duration, between("0s", "1d")] = Field(
        default=timedelta(seconds=30),
        description="How long running tasks may go on after the worker was asked to stop.",
    )
    outbox_directory: AbsolutePath | None = Field(
        default=None,
        description="Where the dispatcher writes the files of file sinks. Without it, outbox below the home.",
    )
    outbox_allow: Hosts = Field(
        default=(),
        description="Hosts and networks that events may go to though they are internal, or without TLS.",
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

    email_provider: Annotated[str, Field(min_length=1)] = Field(
        default="mailbox",
        description="Who sends e-mail: mailbox (kept in the database), resend, smtp, or one of a package.",
    )
    email_sender: str | None = Field(
        default=None,
        description="From whom e-mail comes that names no sender: Shop <shop@example.com>.",
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
    sms_provider: Annotated[str, Field(min_length=1)] = Field(
        default="mailbox",
        description="Who sends text messages: mailbox (kept in the database), twilio, or one of a package.",
    )
    sms_sender: str | None = Field(
        default=None,
        description="From whom text messages come that name no sender: a number, or a name where allowed.",
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
    send_timeout: Annotated[Duration, between("1s", "10m")] = Field(
        default=timedelta(seconds=30),
        description="How long a provider may take for one message.",
    )
    templates: AbsolutePath = Field(
        default=Path("templates"),
        description="Where the templates of messages are.",
    )
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
    function_connections: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="How many database functions the worker runs at once, and how many for messages. "
        "Without it, as many as tasks, up to 50.",
    )
    kill_grace: Annotated[Duration, between("0s", "1h")] = Field(
        default=timedelta(seconds=5),
        description="How long a run that was asked to end may take before it is killed.",
    )
    output_limit: Size = Field(
        default=16 * 1024 * 1024,
        description="How much a run in a process of its own may print before it is ended.",
    )
    web_host: Annotated[str, Field(min_length=1)] = Field(
        default="127.0.0.1",
        description="Address on which `holdfast serve` listens. A public one needs hosts and TLS or proxies.",
    )
    web_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8420,
        description="Port on which `holdfast serve` listens; 0 takes a free one.",
    )
    web_url: Annotated[str, AfterValidator(_check_web_url)] | None = Field(
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
    web_secret: Annotated[SecretStr | None, AfterValidator(_check_secrets)] = Field(
        default=None,
        description="Signs tickets to wait for a task; of several, the first signs and all are accepted.",
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
    def outbox_files(self) -> Path:
        return self.outbox_directory or self.home / "outbox"

    @property
    def web_secrets(self) -> tuple[str, ...]:
        """The first signs, all are accepted."""
        return () if self.web_secret is None else tuple(self.web_secret.get_secret_value().split(","))

    commands: Annotated[dict[str, Command], BeforeValidator(_read_commands)] = Field(
        default_factory=dict,
        description="External programs that run tasks of the executor command, by name.",
    )

    @model_validator(mode="after")
    def _heartbeat_fits(self) -> "Settings":
        """Into the lease, and into the silence after which others take the worker for dead."""
        seconds = {
            name: f"{getattr(self, name).total_seconds():g}s"
            for name in ("heartbeat", "lease", "worker_timeout")
        }
        if self.heartbeat * 2 > self.lease:
            raise PydanticCustomError(
                "heartbeat",
                "HOLDFAST_HEARTBEAT='{heartbeat}' cannot be used: give at most half of the lease, "
                "which is {lease}",
                seconds,
            )
        if self.heartbeat * 2 > self.worker_timeout:
            raise PydanticCustomError(
                "heartbeat",
                "WORKER_TIMEOUT='{worker_timeout}' cannot be used: give at least twice the heartbeat "
                "(HOLDFAST_HEARTBEAT), which is {heartbeat}",
                seconds,
            )
        return self

    @classmethod
    def load(cls, **arguments: Any) -> "Settings":
        """Read all sources; an argument that is None counts as not given."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            raise ConfigurationError(_explain(error.errors()[0])) from None
        except TOMLDecodeError as error:
            raise ConfigurationError(f"pyproject.toml cannot be read: {error}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, PyprojectTomlConfigSettingsSource(settings_cls), _Environment(settings_cls)


class DispatcherSettings(Settings):
    """The same for a dispatcher, which has no heartbeat that has to fit into its lease."""

    @model_validator(mode="after")
    def _heartbeat_fits(self) -> "DispatcherSettings":
        return self


def _explain(error: Mapping[str, Any]) -> str:
    if error["type"] == "heartbeat":
        return str(error["msg"])
    name = str(error["loc"][0])
    if name == "commands" and len(error["loc"]) > 1:
        place = ".".join(map(str, error["loc"]))
        given = "" if error["type"] in ("missing", "extra_forbidden") else f" {error['input']!r}"
        return f"{place}{given} cannot be used: {str(error['msg']).removeprefix('Value error, ')}"
    if error["type"] == "extra_forbidden":
        return f"{name} is not a setting; the settings are {', '.join(sorted(Settings.model_fields))}"
    allowed = str(error["msg"]).removeprefix("Value error, ")
    if name == "database_url" or SecretStr in get_args(Settings.model_fields[name].annotation):
        return f"{variable_of(name)} cannot be used: {allowed}. It is not shown, because it may hold a secret"
    value = _USERINFO.sub("***@", str(error["input"])) if name.endswith("_url") else str(error["input"])
    return f"{variable_of(name)}={value!r} cannot be used: {allowed}"
