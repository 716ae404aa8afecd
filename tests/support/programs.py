"""Programs that a test needs and a machine may lack."""

import os
import shutil
from pathlib import Path

import pytest


def needed(program: str, ensure: str) -> Path:
    """Where it is. Without it the test is skipped, or fails where CI says that nothing may be."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        reason = f"there is no {program}; tools/{ensure} installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(found)
