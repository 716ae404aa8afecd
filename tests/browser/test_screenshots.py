"""The command that draws the pictures of the documentation."""

import subprocess
from pathlib import Path

import pytest

from support.documents import DOCS, ROOT


@pytest.mark.usefixtures("browser")  # where Chromium is missing, this is skipped
@pytest.mark.timeout(300)
def test_the_command_draws_every_picture(tmp_path: Path) -> None:
    subprocess.run(["make", "screenshots", f"ARGS={tmp_path}"], cwd=ROOT, check=True, timeout=280)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert drawn.keys() == {path.name for path in (DOCS / "images").iterdir()}
    assert all(picture.startswith(b"\x89PNG") for picture in drawn.values())
