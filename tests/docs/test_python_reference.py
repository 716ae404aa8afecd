"""docs/reference/python.md says what an application can import, pass and call."""

import inspect
import pkgutil
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import messages
from holdfast._connections.process_handle import ProcessHandle
from holdfast._worker.handler_options import handler_options
from holdfast.messages.send_message import EmailContent, SmsContent
from holdfast.options import python_options
from holdfast.schedule import ScheduleOptions
from support.documents import DOCS, rows, sections

_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
PAGE = sections(DOCS / "reference" / "python.md")


def described(title: str) -> set[str]:
    return {name for row in rows(PAGE[title]) for name in row[0].split(", ")}


def members(kind: type[Any]) -> set[str]:
    own = {name for name in vars(kind) if not name.startswith("_")}
    return own | {name for name in getattr(kind, "__slots__", ()) if not name.startswith("_")}


def options(function: Any) -> set[str]:
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind in named and p.name != "self"
    }


def test_every_module_without_an_underscore_is_described_or_not_for_import() -> None:
    """The others begin with an underscore, or are commands and what entry points load."""
    loaded = {"cli", "isolation", "processes", "shards", "sql"}
    modules = {module.name for module in pkgutil.iter_modules(holdfast.__path__)} | {"sql"}
    assert described("Modules") == {name for name in modules if not name.startswith("_")} - loaded


def test_the_package_has_few_rooms() -> None:
    public = described("Modules")
    assert len({module.name for module in pkgutil.iter_modules(holdfast.__path__)} - public) <= 13


def test_every_public_name_is_described() -> None:
    assert described("Names") == set(holdfast.__all__) - {"__version__"}


def test_every_public_name_can_be_imported() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = holdfast.Nonsense  # type: ignore[attr-defined]


def test_type_checkers_see_the_public_names() -> None:
    stub = Path(holdfast.__file__).with_suffix(".pyi").read_text()
    imported = re.findall(r"(?m)^from holdfast\.(\w+) import (\w+) as \2$", stub)
    assert {name for _, name in imported} == set(holdfast.__all__) - {"__version__"}
    assert all(getattr(import_module(f"holdfast.{module}"), name) for module, name in imported)


def test_every_member_of_an_app_is_described() -> None:
    assert described("App") == members(holdfast.App) | {
        "middlewares",
        "handlers",
        "schedules",
        "name",
        "sends_messages",
    }


def test_the_options_of_a_task_are_described_as_they_are_declared() -> None:
    [_, *listed] = rows(PAGE["Options of a task"])
    assert {name: _LINK.sub(r"\1", meaning) for name, _, meaning in listed} == {
        name: option.help for name, option in handler_options().items()
    }


def test_every_option_of_a_schedule_is_described() -> None:
    assert described("Options of a schedule") == {"cron", *ScheduleOptions.__annotations__}


def test_the_options_of_enqueue_are_described_as_they_are_declared() -> None:
    declared = {name: option.help.replace("`", "") for name, option in python_options().items()}
    assert dict(rows(PAGE["Enqueueing"])) == declared


def test_every_field_of_the_info_of_a_task_is_described() -> None:
    assert described("TaskInfo") == {field.name for field in fields(holdfast.TaskInfo)}


def test_every_member_of_a_handle_is_described() -> None:
    listed = described("Handle")
    assert members(holdfast.Handle) - {f"a{name}" for name in listed} == listed


def test_every_member_of_a_process_handle_is_described() -> None:
    listed = described("ProcessHandle")
    assert members(ProcessHandle) - {f"a{name}" for name in listed} == listed


def test_every_name_of_comms_is_described() -> None:
    assert described("comms") == set(messages.__all__)


def test_every_option_of_a_message_is_described() -> None:
    taken = options(messages.send_email) - {"content"} | set(EmailContent.__annotations__)
    assert described("Options of a message") == taken
    assert taken >= set(SmsContent.__annotations__)
    for method in (messages.asend_email, messages.send_sms, messages.asend_sms):
        assert options(method) == options(messages.send_email)


def test_every_member_of_a_sending_is_described() -> None:
    assert members(messages.Sending) - {"astatus", "await_end"} == described("Sending")
