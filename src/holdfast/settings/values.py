"""The values of settings: how each kind is written in the environment, and what is valid."""

import math
import re
from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from pydantic import AfterValidator, BeforeValidator, SecretStr

from holdfast.resources import parse_size

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?|\.\d+)\s*(?P<unit>ms|s|m|h|d)?", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", re.ASCII)
_PREFIX = re.compile(r"\+[1-9][0-9]{0,14}", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SHARD = re.compile(r"[a-z][a-z0-9]{0,15}", re.ASCII)
MIN_SECRET_LENGTH = 32
MAX_SHARDS = 256
"""As many as one byte of an id can tell apart."""


def parse_duration(value: object) -> timedelta:
    """Seconds as a number, or a number with a unit: 500ms, 30s, 5m, 2h, 7d."""
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError("give seconds (30, 0.5) or a number with a unit (500ms, 30s, 5m, 2h, 7d)")
    seconds = float(match["number"]) * _SECONDS[match["unit"] or "s"]
    if not math.isfinite(seconds) or seconds >= timedelta.max.total_seconds():
        raise ValueError("give a shorter duration")
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


def check_web_url(value: str) -> str:
    if re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", value) is None:
        raise ValueError("give an address such as https://tasks.example.com")
    return value.rstrip("/")


def check_link(field: str) -> Callable[[str], str]:
    """Of an address in which {field} is replaced, after its host."""

    def check(value: str) -> str:
        before, _, after = value.partition(f"{{{field}}}")
        host = re.match(r"https?://[^\s/?#{}]+[/?#]", before)
        if host is None or value == before or re.search(r"[\s{}]", before + after):
            raise ValueError(f"give an address such as https://logs.example.com/?query={{{field}}}")
        return value

    return check


def check_secrets(value: SecretStr | None) -> SecretStr | None:
    if value and any(len(secret) < MIN_SECRET_LENGTH for secret in value.get_secret_value().split(",")):
        raise ValueError(
            f"give {MIN_SECRET_LENGTH} characters or more that cannot be guessed: openssl rand -hex 32"
        )
    return value


def split_names(text: str) -> list[str]:
    """Names separated by commas, as an environment variable has them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _read_names(value: object) -> object:
    return split_names(value) if isinstance(value, str) else value


def read_shards(value: object) -> object:
    """Names and addresses: a table of pyproject.toml, or `s00=URL s01=URL` of the environment."""
    if isinstance(value, str):
        pairs = [pair.partition("=") for pair in value.split()]
        value = {name: url for name, _, url in pairs}
        if len(value) < len(pairs):
            raise ValueError("give each shard a name of its own")
    if not isinstance(value, dict):
        raise ValueError("give names and addresses, such as s00=postgresql://… s01=postgresql://…")  # noqa: TRY004 - pydantic explains only this one
    for name, url in value.items():
        if not _SHARD.fullmatch(str(name)):
            shown = "an address" if "://" in str(name) else repr(name)  # it may hold a password
            raise ValueError(f"{shown} is not a name such as s00: a letter, then up to 15 letters and digits")
        if not isinstance(url, str) or not url.strip():
            raise ValueError(f"shard {name} has no address: give one such as {name}=postgresql://…")
        if url.count("://") > 1:
            raise ValueError(f"shard {name} has two addresses: write a space between shards")
    if len(value) > MAX_SHARDS:
        raise ValueError(f"give at most {MAX_SHARDS} shards")
    return value


def between(least: str, most: str) -> AfterValidator:
    """Bounds, named in the error."""
    low, high = parse_duration(least), parse_duration(most)

    def check(value: timedelta) -> timedelta:
        if not low <= value <= high:
            raise ValueError(f"give a duration between {least} and {most}")
        return value

    return AfterValidator(check)


def _check_http_url(value: str) -> str:
    """Secrets are sent there: without TLS only to this machine itself."""
    parts = urlsplit(value)
    if not parts.hostname or parts.scheme not in ("https", "http"):
        raise ValueError("give an address such as https://api.example.com")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError("give an address that begins with https://")
    return value.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether this is the machine itself, so that no network is in between."""
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
Names = Annotated[tuple[str, ...], BeforeValidator(_read_names)]
Networks = Annotated[Names, AfterValidator(_check_networks)]
Prefixes = Annotated[Names, AfterValidator(_check_prefixes)]
Hosts = Annotated[Names, AfterValidator(_check_hosts)]
HttpUrl = Annotated[str, AfterValidator(_check_http_url)]
DatabaseUrl = Annotated[str, AfterValidator(_check_database_url)]
AbsolutePath = Annotated[Path, AfterValidator(lambda path: path.expanduser().absolute())]
