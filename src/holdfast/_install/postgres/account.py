"""The operating system account that runs the server, because PostgreSQL refuses to run as root."""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import EmbeddedServerError

SYSTEM_USER = "holdfast"

_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # not on PATH after su and in many containers


@dataclass(frozen=True)
class ServerAccount:
    uid: int
    gid: int

    @property
    def is_current_user(self) -> bool:
        return self.uid == os.geteuid()

    def run(
        self, *command: str | Path, cwd: Path, text: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, in its own session, without the caller's PG* variables."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.run(  # noqa: PLW1510 - callers check the return code
            command,
            cwd=cwd,
            env=environment | {"LC_ALL": "C"} | variables,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            user=None if self.is_current_user else self.uid,
            group=None if self.is_current_user else self.gid,
            extra_groups=None if self.is_current_user else [],
        )

    def may_enter(self, directory: Path) -> bool:
        """Try it: modes, groups, access control lists and mounts all matter."""
        return (
            self.is_current_user or self.run("sh", "-c", 'cd "$0"', directory, cwd=Path("/")).returncode == 0
        )

    def may_run(self, program: Path) -> bool:
        try:
            return self.is_current_user or self.run(program, "--version", cwd=Path("/")).returncode == 0
        except PermissionError:
            return False

    def write(self, path: Path, text: str) -> None:
        """Write a file as the account: as root, this could follow a link planted by the account."""
        written = self.run("sh", "-c", 'exec cat >"$0"', path, cwd=path.parent, text=text)
        if written.returncode != 0:
            raise EmbeddedServerError(f"{path} could not be written: {written.stdout.strip()}")


def account_for(path: Path) -> ServerAccount:
    """The owner of the path if it exists, or the current user, or for root a system user."""
    owner = path.stat() if path.exists() else None
    if os.geteuid() != 0:
        if owner and owner.st_uid != os.geteuid():
            raise EmbeddedServerError(
                f"{path} belongs to {_name(owner.st_uid)}: run this as that user or as root, "
                "or set HOLDFAST_HOME to a directory of your own"
            )
        return ServerAccount(os.geteuid(), os.getegid())
    if owner and owner.st_uid != 0:
        return ServerAccount(owner.st_uid, owner.st_gid)
    return _system_account()


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _system_account() -> ServerAccount:
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        _create_system_user()
        entry = pwd.getpwnam(SYSTEM_USER)
    return ServerAccount(entry.pw_uid, entry.pw_gid)


def _create_system_user() -> None:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', os.defpath)}:{_ADMIN_PATH}")
    command = [useradd or "useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent"]
    command += ["--shell", "/usr/sbin/nologin", SYSTEM_USER]
    already_exists = 9  # another process created it first
    if useradd is None:
        made = subprocess.CompletedProcess(command, 127, stderr="useradd is not installed")
    else:
        made = subprocess.run(command, capture_output=True, text=True)  # noqa: PLW1510 - checked below
    if made.returncode not in {0, already_exists}:
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER} could not be created "
            f"({made.stderr.strip()}): create it, run as another user, or set DATABASE_URL"
        )


def private_directory(path: Path, account: ServerAccount) -> Path:
    """Create a directory that only the account may enter, or raise if another one is in its place."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    else:
        if not account.is_current_user:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or stat.S_IMODE(found.st_mode) & 0o077:
        raise EmbeddedServerError(
            f"{path} must be a directory that only {_name(account.uid)} may enter: remove it and try again"
        )
    return path
