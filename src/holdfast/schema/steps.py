"""What a migration does, step by step: the same for `migrate` and for the script that psql applies."""

from dataclasses import dataclass

from holdfast import __version__
from holdfast.schema.sources import Piece, Sources


@dataclass(frozen=True)
class Steps:
    sources: Sources
    force: bool = False

    @property
    def deciding(self) -> list[Piece]:
        """Wait, refuse what must be refused, and leave in holdfast.action what is to do."""
        return [
            Piece("settings", self._settings()),
            self.sources.read("install/begin.sql"),
            self.sources.read("roles.sql"),
            self.sources.read("schemas.sql"),
            Piece("owner", "set local role holdfast_owner;\n"),
            self.sources.read("install/wait_for_others.sql"),
            self.sources.read("install/decide.sql"),
        ]

    @property
    def preparing(self) -> list[Piece]:
        """Workers go on meanwhile: a lock that is not had soon is given up, and the whole tried again."""
        # Less than deadlock_timeout, so that of two who wait for each other it is not a client that is ended.
        limits = "set local check_function_bodies = off;\nset local lock_timeout = '500ms';\n"
        return [
            Piece("limits", limits),
            self.sources.read("install/take_tables.sql"),
            self.sources.read("defaults.sql"),
        ]

    @property
    def making_room(self) -> list[Piece]:
        return [
            Piece("functions to come", _setting("functions", self.sources.function_headers)),
            self.sources.read("install/find_stale_functions.sql"),
            self.sources.read("install/drop_stale_views.sql"),
            self.sources.read("install/drop_stale_functions.sql"),
        ]

    @property
    def replaying(self) -> list[Piece]:
        return [
            *self.sources.functions,
            Piece("views to come", _setting("views", self.sources.view_queries)),
            self.sources.read("install/find_stale_views.sql"),
            self.sources.read("install/drop_stale_views.sql"),
            *self.sources.views,
            *self.sources.functions_on_views,
            self.sources.read("grants.sql"),
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
        )


def _setting(name: str, value: str) -> str:
    """Read by the DO blocks of `install/`, because a DO block takes no parameters."""
    quoted = value.replace("'", "''")
    return f"set local holdfast.{name} = '{quoted}';\n"
