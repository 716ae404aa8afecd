"""Loads settings: defaults, then `[tool.holdfast]` in pyproject.toml, then the environment, then arguments.

Each source overrides the one before it. pyproject.toml is read from the working directory. A web framework
that has settings of its own provides them with `provide_settings`.

pydantic-settings does less, and takes 36 ms of each start. The groups are bases of one class, and not its
members: a setting has the same name as an argument, in pyproject.toml and in the environment.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import SecretStr, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from holdfast.errors import ConfigurationError, did_you_mean
from holdfast.settings.groups import (
    DatabaseSettings,
    EmailSettings,
    EventSettings,
    IsolationSettings,
    SmsSettings,
    Variable,
    WebSettings,
    WorkerSettings,
)
from holdfast.settings.pyproject import read_pyproject

WITHHELD = "HOLDFAST_WITHHELD"
"""Lists the variables that a child process of a worker does not get, so that it can say so."""
_USERINFO = re.compile(r"[^/\s]*@")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    own = [one.name for one in Settings.model_fields[name].metadata if isinstance(one, Variable)]
    return own[0] if own else f"HOLDFAST_{name.upper()}"


_provided: list[Callable[[], Mapping[str, Any]]] = []


def provide_settings(read: Callable[[], Mapping[str, Any]]) -> None:
    """Let a framework provide settings, by name. They override pyproject.toml.

    Its database also overrides DATABASE_URL: in a test, the framework alone knows the test database.
    """
    _provided[:] = [read]


class Settings(
    DatabaseSettings,
    WorkerSettings,
    IsolationSettings,
    EventSettings,
    EmailSettings,
    SmsSettings,
    WebSettings,
):
    """All settings. Build them with `load`."""

    @property
    def outbox_files(self) -> Path:
        return self.outbox_directory or self.home / "outbox"

    @model_validator(mode="after")
    def _heartbeat_fits(self) -> "Settings":
        """The heartbeat must fit into the lease, and into the silence after which a worker counts as dead."""
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

    def __init__(self, **arguments: Any) -> None:
        """Read all sources; arguments override them."""
        from_file = read_pyproject()
        framework = {name: value for read in _provided for name, value in read().items()}
        database = {name: value for name, value in framework.items() if name == "database_url"}
        given = {**from_file, **framework, **_environment(), **database, **arguments}
        if isinstance(from_file.get("commands"), dict) and isinstance(given["commands"], dict):
            given["commands"] = {**from_file["commands"], **given["commands"]}
        super().__init__(**given)

    @classmethod
    def load(cls, **arguments: Any) -> "Settings":
        """Read all sources. An argument that is None is ignored."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            raise ConfigurationError(_explain(error.errors()[0], given)) from None


def _environment() -> dict[str, str]:
    """An empty variable counts as not set."""
    found = {name: os.environ.get(variable_of(name)) for name in Settings.model_fields}
    return {name: value for name, value in found.items() if value}


class DispatcherSettings(Settings):
    """For a dispatcher, which has no heartbeat that must fit into its lease."""

    @model_validator(mode="after")
    def _heartbeat_fits(self) -> "DispatcherSettings":
        return self


def _explain(error: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    if error["type"] == "heartbeat":
        return str(error["msg"])
    name = str(error["loc"][0])
    if name == "shards":
        allowed = str(error["msg"]).removeprefix("Value error, ")
        return f"HOLDFAST_SHARDS cannot be used: {allowed}. It is not shown, because it may hold passwords"
    if name == "commands" and len(error["loc"]) > 1:
        place = ".".join(map(str, error["loc"]))
        given = "" if error["type"] in ("missing", "extra_forbidden") else f" {error['input']!r}"
        return f"{place}{given} cannot be used: {str(error['msg']).removeprefix('Value error, ')}"
    if error["type"] == "extra_forbidden":
        return f"unknown setting {name!r}{did_you_mean(name, sorted(Settings.model_fields))}"
    allowed = str(error["msg"]).removeprefix("Value error, ")
    shown = _named_as_given(name, arguments)
    if name == "database_url" or SecretStr in get_args(Settings.model_fields[name].annotation):
        return f"{shown} cannot be used: {allowed}. It is not shown, because it may hold a secret"
    value = _USERINFO.sub("***@", str(error["input"])) if name.endswith("_url") else str(error["input"])
    return f"{shown}={value!r} cannot be used: {allowed}"


def _named_as_given(name: str, arguments: Mapping[str, Any]) -> str:
    """The variable, which is also the name of an argument, or the place in the file."""
    elsewhere = {*arguments, *_environment(), *(key for read in _provided for key in read())}
    return variable_of(name) if name in elsewhere else f"pyproject.toml: {name}"
