"""The file sink and the console sink."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.outbox.failure import Undelivered
from holdfast.outbox.sink import Place, build_sink
from holdfast.outbox.sinks.file import FileSink
from outbox.test_event import EVENT_ID, outgoing


def sink_for(directory: Path, target: str = "events.jsonl", **options: str) -> FileSink:
    return FileSink(Place("test", target, options, allow_internal=False, directory=directory))


async def test_each_event_is_a_line_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sink = sink_for(tmp_path)
    await asyncio.gather(*(sink.send(outgoing(f'{{"n": {n}}}')) for n in range(100)))
    await sink.close()

    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["data"]["n"] for line in lines] == list(range(100))
    assert {line["id"] for line in lines} == {str(EVENT_ID)}
    assert 1 <= len(synced) < 10


async def test_fsync_may_be_left_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sink = sink_for(tmp_path, fsync="never")
    await sink.send(outgoing())
    await sink.close()

    assert synced == []


async def test_what_was_there_stays_and_a_torn_line_is_ended(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"id": "whole"}\n{"id": "to')
    sink = sink_for(tmp_path)
    await sink.send(outgoing())
    await sink.close()

    whole, torn, new = (tmp_path / "events.jsonl").read_text().splitlines()
    assert (json.loads(whole)["id"], torn, json.loads(new)["id"]) == ("whole", '{"id": "to', str(EVENT_ID))


async def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    await sink.send(outgoing())
    (tmp_path / "events.jsonl").rename(tmp_path / "events.1")
    await sink.send(outgoing())
    await sink.close()

    assert (tmp_path / "events.1").read_text() == (tmp_path / "events.jsonl").read_text()


async def test_a_file_that_cannot_be_written_is_said_so_and_tried_again(tmp_path: Path) -> None:
    sink = sink_for(tmp_path, "below/events.jsonl")
    with pytest.raises(Undelivered, match="No such file or directory"):
        await sink.send(outgoing())
    (tmp_path / "below").mkdir()
    await sink.send(outgoing())
    await sink.close()


@pytest.mark.parametrize("target", ["../events", "/etc/passwd", ".", "a/../../events"])
def test_nothing_is_written_outside_of_the_directory(tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigurationError, match="not below"):
        sink_for(tmp_path, target)


async def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    (tmp_path / "elsewhere").touch()
    (tmp_path / "events.jsonl").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Undelivered):
        await sink.send(outgoing())
    await sink.close()
    assert (tmp_path / "elsewhere").read_text() == ""


async def test_the_console_has_a_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    sink = build_sink("console", Place("test", "-", {}, allow_internal=False, directory=Path()))
    await sink.send(outgoing())
    await sink.close()

    assert json.loads(capsys.readouterr().out)["id"] == str(EVENT_ID)


def test_an_unknown_sink_is_said_so() -> None:
    with pytest.raises(ConfigurationError, match="there is no sink 'pigeon'"):
        build_sink("pigeon", Place("test", "-", {}, allow_internal=False, directory=Path()))


def test_a_package_may_add_a_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("pigeon", "holdfast.outbox.sinks.console:ConsoleSink", "holdfast.sinks")
    monkeypatch.setattr("holdfast.outbox.sink.entry_points", lambda group: [point] * (group == point.group))

    sink = build_sink("pigeon", Place("test", "-", {}, allow_internal=False, directory=Path()))

    assert type(sink).__name__ == "ConsoleSink"
