"""What a project sets in `settings.HOLDFAST`, and the address of its database from `settings.DATABASES`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from psycopg.conninfo import make_conninfo

from holdfast.errors import did_you_mean
from holdfast.settings import Settings

DEFAULT_APP = "holdfast.contrib.django:app"

# Options that Django gives to psycopg or handles itself; all others are parameters of libpq.
_NOT_OF_LIBPQ = {
    *("assume_role", "autocommit", "client_encoding", "context", "cursor_factory", "isolation_level"),
    *("pool", "prepare_threshold", "row_factory", "server_side_binding"),
}


@dataclass(frozen=True, slots=True)
class Conf:
    """The keys of `settings.HOLDFAST` that only Django has. All others are settings of Holdfast."""

    app: str = DEFAULT_APP
    database: str = "default"
    name: str | None = None
    autodiscover: tuple[str, ...] = ("tasks",)
    migrate: bool = True
    dashboard_url: str | None = None
    other: Mapping[str, Any] | None = None


OWN_KEYS = {"APP", "DATABASE", "NAME", "AUTODISCOVER", "MIGRATE", "DASHBOARD_URL"}


def read_conf() -> Conf:
    """Read again at every call, because tests override settings."""
    given = _given()
    own: dict[str, Any] = {key.lower(): value for key, value in given.items() if key in OWN_KEYS}
    if "autodiscover" in own:
        own["autodiscover"] = tuple(own["autodiscover"])
    return Conf(**own, other={key.lower(): value for key, value in given.items() if key not in OWN_KEYS})


def unknown_keys() -> list[str]:
    """One sentence for each key that is neither ours nor a setting of Holdfast."""
    known = OWN_KEYS | {name.upper() for name in Settings.model_fields} - {"DATABASE_URL"}
    return [
        f"HOLDFAST[{key!r}] is not a setting{did_you_mean(str(key), known)}"
        for key in _given()
        if key not in known
    ]


def provided_settings() -> dict[str, Any]:
    """For `holdfast.settings`: the settings of the project, and its database."""
    conf = read_conf()
    return {**(conf.other or {}), "database_url": dsn_of(conf.database)}


def project_name() -> str:
    """The name of the project's app: the package of its settings, unless NAME says otherwise."""
    named = read_conf().name
    if named:
        return named
    module = getattr(settings, "SETTINGS_MODULE", None) or getattr(settings, "ROOT_URLCONF", None) or "django"
    return str(module).partition(".")[0]


def dsn_of(alias: str) -> str:
    """The address of a database of Django as it is now: during tests that of the test database."""
    if alias not in connections:
        known = ", ".join(map(repr, connections))
        raise ImproperlyConfigured(
            f"Tasks are to be stored in DATABASES[{alias!r}], and there is only {known}. "
            "Add it, or name one that is there."
        )
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"Holdfast stores tasks in PostgreSQL, but DATABASES[{alias!r}] is {connection.vendor}. "
            "Set its ENGINE to django.db.backends.postgresql, or name another in HOLDFAST['DATABASE']."
        )
    given = connection.settings_dict
    options = dict(given.get("OPTIONS") or {})
    parameters = {name: value for name, value in options.items() if name not in _NOT_OF_LIBPQ}
    for key, name in {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host"}.items():
        if given.get(key):
            parameters[name] = given[key]
    if given.get("PORT"):
        parameters["port"] = given["PORT"]
    if options.get("assume_role"):
        role = str(options["assume_role"]).replace("\\", "\\\\").replace(" ", "\\ ")
        parameters["options"] = f"{parameters.get('options', '')} -c role={role}".strip()
    return make_conninfo("", **parameters)


def _given() -> dict[str, Any]:
    given = getattr(settings, "HOLDFAST", None) or {}
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(
            f"settings.HOLDFAST is a {type(given).__name__}. "
            'Make it a dictionary, such as {"WORKER_CONCURRENCY": 10}.'
        )
    return dict(given)
