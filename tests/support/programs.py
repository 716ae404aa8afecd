"""What a test needs and a machine may lack."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def not_tested(reason: str) -> NoReturn:
    """Skip the test, or let it fail where CI says that nothing may be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def needed(program: str, ensure: str) -> Path:
    """Where it is."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        not_tested(f"there is no {program}; tools/{ensure} installs it")
    return Path(found)
