"""Podman with a storage of its own, so that a test leaves the images and containers of the machine alone."""

import fcntl
import hashlib
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.documents import ROOT
from support.programs import needed, not_tested

BUILD = ROOT / "build" / "containers"
COMPOSE = ROOT / "build" / "podman-compose" / "bin" / "podman-compose"
BASE_IMAGE = ROOT / "tests" / "deploy" / "base-image"

LIMITS = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}


@dataclass(frozen=True)
class Podman:
    environment: dict[str, str]

    def __call__(self, *arguments: str | Path, check: bool = True, seconds: float = 240) -> str:
        return self._run(["podman", *map(str, arguments)], check=check, seconds=seconds)

    def compose(self, file: Path, *arguments: str, check: bool = True) -> str:
        return self._run([str(COMPOSE), "--file", str(file), *arguments], check=check, seconds=120)

    def build(self, context: Path, file: Path, tag: str, *options: str, base: str | None = None) -> None:
        from_base = ("--build-arg", f"PYTHON={base}") if base else ()
        named = ("--file", str(file), "--tag", tag)
        self("build", "--network", "host", *named, *from_base, *options, context, seconds=420)

    def _run(self, command: list[str], *, check: bool, seconds: float) -> str:
        ran = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert not check or ran.returncode == 0, f"{command}: {ran.stdout[-4000:]}{ran.stderr[-4000:]}"
        return ran.stdout.strip()


@contextmanager
def podman() -> Iterator[Podman]:
    """For one test at a time: they use the same names and addresses."""
    needed("podman", "ensure-podman")
    if os.geteuid() != 0 or not COMPOSE.exists():
        not_tested("containers need root, and what tools/ensure-podman installs")
    BUILD.mkdir(parents=True, exist_ok=True)
    # Podman would set its own, which are higher, and may not.
    limits = [f"{name}={_most(limit)}:{_most(limit)}" for name, limit in LIMITS.items()]
    # runc, because crun refuses a machine that has both versions of control groups.
    (BUILD / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = {limits}\n[network]\nnetwork_config_dir = "{BUILD}/networks"\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    (BUILD / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{BUILD}/storage"\nrunroot = "/run/holdfast-tests"\n'
    )
    settings = {
        "CONTAINERS_CONF": f"{BUILD}/containers.conf",
        "CONTAINERS_STORAGE_CONF": f"{BUILD}/storage.conf",
    }
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = Podman({**os.environ, **settings, "PATH": path})
        try:
            yield run
        finally:
            run("rm", "--all", "--force", "--time", "0", check=False)
            run("volume", "prune", "--force", check=False)
            run("network", "prune", "--force", check=False)
            run("image", "unmount", "--all", check=False)
            # Podman mounts this directory on itself and leaves it so, and make clean could not remove it.
            subprocess.run(
                ["umount", "--lazy", BUILD / "storage" / "overlay"], capture_output=True, check=False
            )


def _most(limit: int) -> int:
    _, hard = resource.getrlimit(limit)
    return 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)


def base_image(run: Podman) -> str:
    """An image of the packages of this machine, made once for each version of them."""
    known = BASE_IMAGE.read_bytes() + Path("/var/lib/dpkg/status").read_bytes()
    name = f"localhost/base:{hashlib.sha256(known).hexdigest()[:16]}"
    if not run("images", "--quiet", name):
        archive = BUILD / "base.tar"
        with archive.open("wb") as file:
            subprocess.run([BASE_IMAGE], stdout=file, check=True)
        run("import", "--quiet", archive, name)
        archive.unlink()
    return name
