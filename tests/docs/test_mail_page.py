"""The page about e-mail and text messages runs as printed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.messages.provider import SendFailed, Sent
from holdfast.settings import Settings
from support.database import Database
from support.documents import DOCS, code
from support.messages import EMAIL, email

PAGE = (DOCS / "howto" / "send-email-and-sms.md").read_text()
BIN = Path(sys.executable).parent


def blocks() -> dict[str, str]:
    """By the file that the first line names."""
    named = [text for text in code(PAGE, "python") if text.startswith("# ")]
    return {text.splitlines()[0].removeprefix("# "): text for text in named}


@pytest.mark.full
def test_a_message_is_sent_to_the_mailbox(db: Database, tmp_path: Path) -> None:
    for name in ("shop.py", "main.py"):
        (tmp_path / name).write_text(blocks()[name])
    [commands] = code(PAGE, "sh")
    worker, program, mailbox = (command.split() for command in commands.splitlines())
    variables = {"DATABASE_URL": db.dsn, "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}
    with subprocess.Popen(worker, env=variables, cwd=tmp_path, stderr=subprocess.DEVNULL) as running:
        try:
            printed = [
                subprocess.run(
                    command,
                    env=variables,
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    check=True,
                    timeout=90,
                ).stdout
                for command in (program, mailbox)
            ]
        finally:
            running.terminate()
    assert f"# prints: {printed[0]}" in blocks()["main.py"]
    assert "Welcome, Ada" in printed[1]


async def test_the_provider_on_the_page_does_what_it_says() -> None:
    names: dict[str, type] = {}
    exec(blocks()["pigeons.py"], names)  # noqa: S102 - our own page
    pigeon = names["Pigeon"](Settings.load())
    assert await pigeon.send(EMAIL) == Sent("pigeon", "coo-7")
    with pytest.raises(SendFailed, match="too far"):
        await pigeon.send(email(to="ada@overseas.example"))
    await pigeon.close()
