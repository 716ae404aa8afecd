"""The file sink and the console sink."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigurationError
from holdfast.outbox.sink import SinkConfig, Undelivered, build_sink, known_sinks
from holdfast.outbox.sinks.file_sink import FileSink
from outbox.test_cloud_event import EVENT_ID, outgoing
from support.package import install_package, make_importable


def sink_for(directory: Path, target: str = "events.jsonl", **options: str) -> FileSink:
    return FileSink(SinkConfig("test", target, options, directory))


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
    sink = sink_for(tmp_path)
    await sink.send(outgoing())
    await sink.close()
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"specversion": "1.0", "to')
    sink = sink_for(tmp_path)
    await sink.send(outgoing())
    await sink.close()

    whole, torn, new = (tmp_path / "events.jsonl").read_text().splitlines()
    assert (json.loads(whole)["id"], torn[-3:], json.loads(new)["id"]) == (
        str(EVENT_ID),
        '"to',
        str(EVENT_ID),
    )


async def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    await sink.send(outgoing())
    (tmp_path / "events.jsonl").rename(tmp_path / "events.1")
    await sink.send(outgoing())
    await sink.close()

    assert (tmp_path / "events.1").read_text() == (tmp_path / "events.jsonl").read_text()


async def test_a_file_that_cannot_be_written_is_said_so_and_tried_again(tmp_path: Path) -> None:
    sink = sink_for(tmp_path)
    (tmp_path / "events.jsonl").mkdir()
    with pytest.raises(Undelivered, match="Is a directory"):
        await sink.send(outgoing())
    (tmp_path / "events.jsonl").rmdir()
    await sink.send(outgoing())
    await sink.close()


@pytest.mark.parametrize(
    "target",
    [
        *("../events.jsonl", "/etc/passwd", ".", "a/../../events.jsonl", "below/events.jsonl", ".jsonl"),
        *("bin/deploy.sh", "deploy.sh", "events.jsonl/", ".events.jsonl", "events.jsonl\n", "-"),
    ],
)
def test_only_a_plain_name_of_a_file_of_events_is_taken(tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a valid file name.*orders\.jsonl"):
        sink_for(tmp_path, target)


@pytest.mark.parametrize("kind", ["script", "symbolic link", "hard link", "pipe"])
async def test_nothing_is_written_to_that_is_not_a_file_of_events(tmp_path: Path, kind: str) -> None:
    sink = sink_for(tmp_path / "events")
    script, target = tmp_path / "deploy.sh", tmp_path / "events" / "events.jsonl"
    script.write_text("#!/bin/sh\n")
    if kind == "script":
        target.write_text(script.read_text())
    elif kind == "symbolic link":
        target.symlink_to(script)
    elif kind == "hard link":
        script.write_text("")
        target.hardlink_to(script)
    else:
        os.mkfifo(target)
    before = script.read_text()

    with pytest.raises(Undelivered, match=r"events\.jsonl cannot be written"):
        await sink.send(outgoing())
    await sink.close()
    assert script.read_text() == before
    assert kind == "pipe" or target.read_text() == before


def test_a_directory_of_others_is_refused(tmp_path: Path) -> None:
    used, open_to_all, link = tmp_path / "used", tmp_path / "open", tmp_path / "link"
    used.mkdir()
    (used / "deploy.sh").touch()
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    for directory in (used, open_to_all, link):
        with pytest.raises(ConfigurationError, match="HOLDFAST_OUTBOX_DIRECTORY"):
            sink_for(directory)
    assert [path.name for path in used.iterdir()] == ["deploy.sh"]


async def test_a_directory_of_its_own_is_made_and_used_again(tmp_path: Path) -> None:
    for _ in range(2):
        sink = sink_for(tmp_path / "home" / "outbox")
        await sink.send(outgoing())
        await sink.close()
    assert len((tmp_path / "home" / "outbox" / "events.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "home" / "outbox").stat().st_mode & 0o027 == 0


async def test_the_console_has_a_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    sink = build_sink("console", SinkConfig("test", "-", {}, Path()))
    await sink.send(outgoing())
    await sink.close()

    assert json.loads(capsys.readouterr().out)["id"] == str(EVENT_ID)


def test_an_unknown_sink_is_said_so() -> None:
    with pytest.raises(ConfigurationError, match="there is no sink 'pigeon'"):
        build_sink("pigeon", SinkConfig("test", "-", {}, Path()))


def test_a_package_may_add_a_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"holdfast.sinks": {"pigeon": "pigeons:Pigeon"}}
    target = install_package(
        tmp_path, "pigeons", "class Pigeon:\n    def __init__(self, config): ...\n", points
    )
    make_importable(monkeypatch, target, "pigeons")

    sink = build_sink("pigeon", SinkConfig("test", "-", {}, Path()))

    assert type(sink).__module__ == "pigeons"
    assert "pigeon" in known_sinks()
