"""Renders the subject, text and HTML of messages from Jinja templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigurationError, InvalidArgument

if TYPE_CHECKING:
    from jinja2 import Environment

_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    subject: str | None
    text: str | None
    html: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """The sources of a template, for applications that do not store them in files."""

    subject: str | None = None
    text: str | None = None
    html: str | None = None

    def render(
        self, values: Mapping[str, Any] | None = None, *, directory: Path | None = None
    ) -> RenderedMessage:
        """Render all parts. With a directory, they may include and extend the templates in it."""
        plain, escaping = _environments(directory)
        return RenderedMessage(
            _fill("subject", plain, self.subject, values),
            _fill("text", plain, self.text, values),
            _fill("html", escaping, self.html, values),
        )


def load_template(name: str, directory: Path) -> Template:
    """Load NAME.subject.txt, NAME.txt and NAME.html; at least one of them must exist."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} is not a valid template name", hint="Write it without a suffix: mail/welcome."
        )
    parts = {
        part: _read(directory / f"{name}{suffix}")
        for part, suffix in (("subject", ".subject.txt"), ("text", ".txt"), ("html", ".html"))
    }
    if not any(parts.values()):
        raise InvalidArgument(
            f"template {name!r} is not in {directory}",
            hint=f"Create {name}.subject.txt, {name}.txt or {name}.html there, or set HOLDFAST_TEMPLATES.",
        )
    return Template(**parts)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _fill(
    part: str, environment: Environment, source: str | None, values: Mapping[str, Any] | None
) -> str | None:
    if source is None:
        return None
    from jinja2 import TemplateError  # noqa: PLC0415 - an optional dependency

    try:
        return environment.from_string(source).render(values or {})
    except TemplateError as error:
        raise InvalidArgument(f"the {part} of the template cannot be rendered: {error}") from error


@lru_cache(maxsize=16)
def _environments(directory: Path | None) -> tuple[Environment, Environment]:
    """One environment for plain text and one that escapes HTML. A missing value is an error, not blank.

    Both are sandboxed: the author of a template must not be able to run code here.
    """
    try:
        from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415 - an optional dependency
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - as above
    except ModuleNotFoundError:
        raise ConfigurationError(
            "templates need jinja2", hint="Run pip install 'holdfast-pg[comms]'."
        ) from None
    loader = FileSystemLoader(directory) if directory else None
    plain, escaping = (
        ImmutableSandboxedEnvironment(loader=loader, autoescape=escape, undefined=StrictUndefined)
        for escape in (False, True)
    )
    return plain, escaping
