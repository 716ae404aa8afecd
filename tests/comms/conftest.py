"""Providers against servers of the test's own, with no settings of this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.settings import Settings, variable_of
from support.resend_server import ResendServer
from support.twilio_server import TwilioServer


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def resend() -> Iterator[ResendServer]:
    with ResendServer().running() as server:
        yield server


@pytest.fixture
def twilio() -> Iterator[TwilioServer]:
    with TwilioServer().running() as server:
        yield server
