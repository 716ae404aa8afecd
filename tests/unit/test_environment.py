"""What a worker says of the package that its application was installed from."""

import sys
from pathlib import Path
from types import ModuleType

import pydantic
import pytest
import typing_extensions

from holdfast._worker.app_import import Origin
from holdfast._worker.registration import describe_environment


@pytest.mark.parametrize("installed", [pydantic, typing_extensions], ids=["a package", "a single file"])
def test_an_application_that_was_installed_is_told_with_its_version(installed: ModuleType) -> None:
    found = describe_environment(Origin(module=installed.__name__, file=None, name="app"), {})

    assert found["package"] == installed.__name__
    assert found["package_version"]


def test_an_application_that_was_not_installed_has_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corner_shop.py").touch()
    shop = ModuleType("corner_shop")
    shop.__file__ = str(tmp_path / "corner_shop.py")
    monkeypatch.setitem(sys.modules, "corner_shop", shop)

    assert "package" not in describe_environment(Origin(module="corner_shop", file=None, name="app"), {})
