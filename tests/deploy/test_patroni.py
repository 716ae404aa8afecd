"""The page shows the files with which the tests start a cluster."""

from pathlib import Path

import pytest

from support.documents import DOCS, ROOT, blocks

FILES = sorted((ROOT / "deploy" / "patroni").iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_page_on_failover_shows_each_file_of_the_cluster(file: Path) -> None:
    shown = [block.strip() for _, block in blocks((DOCS / "howto" / "survive-a-failover.md").read_text())]

    assert file.read_text().strip() in shown
