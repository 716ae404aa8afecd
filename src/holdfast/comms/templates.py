"""Subject, text and HTML of a message from templates. What they make is what is stored and sent."""

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
class Rendered:
    subject: str | None
    text: str | None
    html: str | None


@dataclass(frozen=True, slots=True)
class Template:
    """The sources themselves, for those who keep them elsewhere than in files."""

    subject: str | None = None
    text: str | None = None
    html: str | None = None

    def render(self, values: Mapping[str, Any] | None = None, *, directory: Path | None = None) -> Rendered:
        """With a directory, they may include and extend the templates in it."""
        plain, escaping = _environments(directory)
        return Rendered(
            _fill("subject", plain, self.subject, values),
            _fill("text", plain, self.text, values),
            _fill("html", escaping, self.html, values),
        )


def load_template(name: str, directory: Path) -> Template:
    """The files NAME.subject.txt, NAME.txt and NAME.html, as far as there are any."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"template {name!r} is not a name", hint="Give it without a suffix: mail/welcome."
        )
    parts = {
        part: _read(directory / f"{name}{suffix}")
        for part, suffix in (("subject", ".subject.txt"), ("text", ".txt"), ("html", ".html"))
    }
    if not any(parts.values()):
        raise InvalidArgument(
            f"template {name!r} is not in {directory}",
            hint=f"Write {name}.subject.txt, {name}.txt and {name}.html there, or set HOLDFAST_TEMPLATES.",
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
    from jinja2 import TemplateError  # noqa: PLC0415 - of an extra

    try:
        return environment.from_string(source).render(values or {})
    except TemplateError as error:
        raise InvalidArgument(f"the {part} of the template cannot be made: {error}") from error


@lru_cache(maxsize=16)
def _environments(directory: Path | None) -> tuple[Environment, Environment]:
    """One for plain text, and one that escapes. A name that is missing is refused, not left blank.

    Sandboxed: whoever may write a template may not run code here.
    """
    try:
        from jinja2 import FileSystemLoader, StrictUndefined  # noqa: PLC0415 - of an extra
        from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415 - as above
    except ModuleNotFoundError:
        raise ConfigurationError("templates need jinja2", hint="Run pip install 'holdfast[comms]'.") from None
    loader = FileSystemLoader(directory) if directory else None
    plain, escaping = (
        ImmutableSandboxedEnvironment(loader=loader, autoescape=escape, undefined=StrictUndefined)
        for escape in (False, True)
    )
    return plain, escaping
