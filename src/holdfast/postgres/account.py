"""The operating system account that runs the server. PostgreSQL refuses to run as root."""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import EmbeddedServerError

SYSTEM_USER = "holdfast"

_ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"  # not on PATH after su, and in many containers


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @property
    def is_mine(self) -> bool:
        return self.uid == os.geteuid()

    def run(
        self, *command: str | Path, cwd: Path, text: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, in its own session, without the caller's PG* variables."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.run(  # noqa: PLW1510 - callers turn a failure into a message with the log
            command,
            cwd=cwd,
            env=environment | {"LC_ALL": "C"} | variables,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            user=None if self.is_mine else self.uid,
            group=None if self.is_mine else self.gid,
            extra_groups=None if self.is_mine else [],
        )

    def may_enter(self, directory: Path) -> bool:
        """Whether the system lets it, whatever the reason: modes, groups, access lists, mounts."""
        return self.is_mine or self.run("sh", "-c", 'cd "$0"', directory, cwd=Path("/")).returncode == 0

    def may_run(self, program: Path) -> bool:
        try:
            return self.is_mine or self.run(program, "--version", cwd=Path("/")).returncode == 0
        except PermissionError:
            return False

    def write(self, path: Path, text: str) -> None:
        """Write a file with the rights of the account: root would follow a link that it has planted."""
        written = self.run("sh", "-c", 'exec cat >"$0"', path, cwd=path.parent, text=text)
        if written.returncode != 0:
            raise EmbeddedServerError(f"{path} could not be written: {written.stdout.strip()}")


def account_for(place: Path) -> Account:
    """Whoever owns the place, else the caller, else (for root) a system user made for it."""
    owner = place.stat() if place.exists() else None
    if os.geteuid() != 0:
        if owner and owner.st_uid != os.geteuid():
            raise EmbeddedServerError(
                f"{place} belongs to {_name(owner.st_uid)}: run this as that user or as root, "
                "or set HOLDFAST_HOME to a directory of your own"
            )
        return Account(os.geteuid(), os.getegid())
    if owner and owner.st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    return _system_account()


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _system_account() -> Account:
    try:
        entry = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        _create_system_user()
        entry = pwd.getpwnam(SYSTEM_USER)
    return Account(entry.pw_uid, entry.pw_gid)


def _create_system_user() -> None:
    useradd = shutil.which("useradd", path=f"{os.environ.get('PATH', os.defpath)}:{_ADMIN_PATH}")
    command = [useradd or "useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent"]
    command += ["--shell", "/usr/sbin/nologin", SYSTEM_USER]
    already_exists = 9  # another process was faster
    if useradd is None:
        made = subprocess.CompletedProcess(command, 127, stderr="useradd is not installed")
    else:
        made = subprocess.run(command, capture_output=True, text=True)  # noqa: PLW1510 - judged below
    if made.returncode not in {0, already_exists}:
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and the user {SYSTEM_USER} could not be created "
            f"({made.stderr.strip()}): create it, run as another user, or set DATABASE_URL"
        )


def private_directory(path: Path, account: Account) -> Path:
    """Make a directory for the account alone; refuse one that somebody else has put there."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        pass
    else:
        if not account.is_mine:
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or stat.S_IMODE(found.st_mode) & 0o077:
        raise EmbeddedServerError(
            f"{path} has to be a directory that only {_name(account.uid)} may enter: remove it, and try again"
        )
    return path
