"""A place for data and programs that the account of root's server cannot reach.

Root often works below a directory that only root may enter, such as /root. Holdfast changes no mode of a
directory that it did not create: it keeps the data, and a copy of the programs, in a directory of its own.
"""

import os
import shutil
import stat
import tempfile
from importlib.metadata import version as version_of
from pathlib import Path

from holdfast.errors import EmbeddedServerError
from holdfast.postgres.account import Account
from holdfast.postgres.installation import WHEEL, binaries, directories_read_by

PLACE = Path("/var/lib/holdfast-postgres")


def link_elsewhere(place: Path, account: Account) -> None:
    """Make a directory for the account, and let `place` be a link to it."""
    try:
        made = Path(tempfile.mkdtemp(prefix="data-", dir=_own_place()))
        os.chown(made, account.uid, account.gid)
        place.symlink_to(made)
    except OSError as error:
        raise EmbeddedServerError(
            f"the account of PostgreSQL may not enter {place.parent}, "
            f"and its data cannot be kept in {PLACE} instead ({error.strerror}): "
            "set HOLDFAST_HOME to a directory that every user may enter, or set DATABASE_URL"
        ) from error


def linked(place: Path) -> Path:
    """Where it leads, if root has made it a link."""
    try:
        status = place.lstat()
    except OSError:
        return place
    return place.resolve() if stat.S_ISLNK(status.st_mode) and status.st_uid == 0 else place


def programs_for(account: Account, version: int) -> Path:
    """Like `binaries`, or a copy of that directory that the account can run."""
    found = binaries(version)
    if account.may_run(found / "postgres"):
        return found
    trees = directories_read_by(version)
    top = Path(os.path.commonpath(trees))
    copy = PLACE / f"programs-{version}-{version_of(WHEEL)}"
    if not copy.exists():
        _copy(trees, top, copy)
    return copy / found.relative_to(top)


def _copy(trees: list[Path], top: Path, target: Path) -> None:
    """Made under another name first, so that a killed copy leaves no half. Another process may be faster."""
    try:
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=_own_place()))
        try:
            for tree in trees:
                shutil.copytree(tree, unfinished / tree.relative_to(top), symlinks=True)
            _let_read(unfinished)
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


def _let_read(tree: Path) -> None:
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def _own_place() -> Path:
    """Root's alone to write: programs are run from here."""
    try:
        PLACE.mkdir()
    except FileExistsError:
        pass
    else:
        PLACE.chmod(0o755)
    found = PLACE.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise EmbeddedServerError(f"{PLACE} has to be a directory that only root may write to")
    return PLACE
