"""The steps of a migration, used by `migrate` and by the equivalent script for psql."""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast import __version__
from holdfast.schema.sources import Sources, SqlPiece

# The owner is holdfast_owner, or the login itself: see install/check_mode.sql.
BECOME_OWNER = SqlPiece(
    "owner", "do $$ begin perform set_config('role', current_setting('holdfast.owner'), true); end $$;\n"
)


@dataclass(frozen=True)
class MigrationSteps:
    sources: Sources
    force: bool = False
    single_login: bool = False
    """Whether the login that migrates owns everything itself, and there are no roles."""

    @property
    def deciding(self) -> list[SqlPiece]:
        """Wait for other migrations, check preconditions, and set holdfast.action to what has to be done."""
        return [
            SqlPiece("settings", self._settings()),
            self.sources.read("install/begin.sql"),
            self.sources.read("install/check_mode.sql"),
            self.sources.read("single_login.sql" if self.single_login else "roles.sql"),
            self.sources.read("schemas.sql"),
            BECOME_OWNER,
            self.sources.read("install/wait_for_others.sql"),
            self.sources.read("install/decide.sql"),
        ]

    @property
    def preparing(self) -> list[SqlPiece]:
        """Workers continue meanwhile: if a lock is not available soon, the whole migration is retried."""
        # Less than deadlock_timeout, so that a deadlock ends the migration and not a client.
        limits = "set local check_function_bodies = off;\nset local lock_timeout = '500ms';\n"
        return [
            SqlPiece("limits", limits),
            self.sources.read("install/take_tables.sql"),
            self.sources.read("defaults.sql"),
        ]

    @property
    def dropping_stale(self) -> list[SqlPiece]:
        return [
            SqlPiece("functions to come", _setting("functions", self.sources.function_headers)),
            self.sources.read("install/find_stale_functions.sql"),
            self.sources.read("install/drop_stale_views.sql"),
            self.sources.read("install/drop_stale_functions.sql"),
        ]

    @property
    def replacing(self) -> list[SqlPiece]:
        return [
            *self.sources.functions,
            SqlPiece("views to come", _setting("views", self.sources.view_queries)),
            self.sources.read("install/find_stale_views.sql"),
            self.sources.read("install/drop_stale_views.sql"),
            *self.sources.views,
            *self.sources.functions_on_views,
            self.sources.read("single_login_grants.sql" if self.single_login else "grants.sql"),
            self.sources.read("install/register_processes.sql"),
            self.sources.read("install/record.sql"),
        ]

    def _settings(self) -> str:
        return (
            "set local search_path = pg_catalog, pg_temp;\n"
            "set local client_min_messages = warning;\n"
            + _setting("version", str(self.sources.version))
            + _setting("release", __version__)
            + _setting("digest", self.sources.digest)
            + _setting("force", "on" if self.force else "off")
            + _setting("single_login", "on" if self.single_login else "off")
        )


def _setting(name: str, value: str) -> str:
    """Settings pass values to the DO blocks of `install/`, which take no parameters."""
    quoted = value.replace("'", "''")
    return f"set local holdfast.{name} = '{quoted}';\n"


def script(sources: Sources | None = None, *, single_login: bool = False) -> str:
    """A script for psql that installs or upgrades. It can be applied any number of times."""
    steps = MigrationSteps(sources or Sources(), single_login=single_login)
    lines = [
        f"-- Holdfast {__version__}, version {steps.sources.version} of the schema. Apply with: psql --file",
        r"\set ON_ERROR_STOP on",
        r"\set QUIET on",
        r"\encoding UTF8",
        "begin isolation level read committed read write;",
        *_texts(steps.deciding),
        "select current_setting('holdfast.action') = 'install' as holdfast_install,",
        "  current_setting('holdfast.action') = 'nothing' as holdfast_nothing,",
        r"  current_setting('holdfast.installed_version') as holdfast_version \gset",
        r"\if :holdfast_nothing",
        r"\set holdfast_done 'nothing to do'",
        r"\else",
        r"\set holdfast_done 'done'",
        *_texts(steps.preparing),
        r"\if :holdfast_install",
        *_texts(steps.sources.tables),
        r"\else",
        *(line for number, piece in steps.sources.migrations for line in _if_older_than(number, piece)),
        r"\endif",
        *_texts([*steps.dropping_stale, *steps.replacing]),
        r"\endif",
        "commit;",
        r"\echo :holdfast_done",
    ]
    return "\n".join(lines) + "\n"


def _texts(pieces: Iterable[SqlPiece]) -> list[str]:
    return [f"\n-- {piece.name}\n{piece.sql}" for piece in pieces]


def _if_older_than(number: int, piece: SqlPiece) -> list[str]:
    return [
        rf"select :holdfast_version < {number} as holdfast_older \gset",
        r"\if :holdfast_older",
        *_texts([piece]),
        r"\endif",
    ]
