"""The steps of a migration, used by `migrate` and by the equivalent script for psql."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holdfast import __version__
from holdfast._install.schema.sources import Part, Sources, SqlPiece
from holdfast.errors import ConfigurationError, did_you_mean
from holdfast.settings import Settings
from holdfast.sql import optional_units

# The owner is holdfast_owner, or the login itself: see check_mode in install.sql.
BECOME_OWNER = SqlPiece(
    "owner", "do $$ begin perform set_config('role', current_setting('holdfast.owner'), true); end $$;\n"
)
_LAST_INSTALLED = "current_setting('holdfast.installed_version')::integer"


@dataclass(frozen=True)
class Choice:
    """Which units somebody asks for. What a database has is recorded in it, and stays."""

    wanted: frozenset[str] = frozenset()
    unwanted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> "Choice":
        return cls(unwanted=frozenset(settings.without))

    def __post_init__(self) -> None:
        for name in sorted(self.wanted | self.unwanted):
            if name not in optional_units.NAMES:
                known = did_you_mean(name, optional_units.NAMES)
                raise ConfigurationError(f"there is no unit {name!r} that a database may do without{known}")
        if both := sorted(self.wanted & self.unwanted):
            raise ConfigurationError(f"{both[0]} cannot be both installed and left out")


@dataclass(frozen=True)
class Step:
    """Pieces that are applied if a condition holds by then, with a line that announces them."""

    pieces: list[SqlPiece]
    condition: str | None = None
    """An expression of SQL."""
    announced: str | None = None


@dataclass(frozen=True)
class MigrationSteps:
    sources: Sources
    force: bool = False
    single_login: bool = False
    """Whether the login that migrates owns everything itself, and there are no roles."""
    choice: Choice = Choice()

    @property
    def deciding(self) -> list[SqlPiece]:
        """Wait for other migrations, check preconditions, and set holdfast.action to what has to be done."""
        return [
            SqlPiece("settings", self._settings()),
            self._section("begin"),
            self._section("check_mode"),
            self.sources.section("rights.sql", "single_login" if self.single_login else "roles"),
            self._section("schemas"),
            BECOME_OWNER,
            self._section("wait_for_others"),
            self._section("choose_units"),
            self._section("decide"),
        ]

    @property
    def applying(self) -> Iterator[Step]:
        """What to do in order, if there is anything to do."""
        yield Step(self._preparing)
        for part in [self.sources.core, *self._units]:
            yield Step(part.tables, _among(part.name, "added"), "creating tables")
        for number, piece, part in self.sources.migrations:
            older = f"{_LAST_INSTALLED} between 1 and {number - 1}"
            here = f"{older} and {_among(part.name, 'parts')} and not {_among(part.name, 'added')}"
            yield Step([piece], here, f"applying {piece.name}")
        upgraded = f"{_LAST_INSTALLED} between 1 and {self.sources.version - 1}"
        for part in [self.sources.core, *self._units]:
            yield Step(part.comments, f"{upgraded} and {_among(part.name, 'parts')}")
        yield Step(self._dropping_stale, announced="replacing functions and views")
        yield from self._replacing
        yield Step([self.sources.section("rights.sql", "revokes")])
        yield Step([] if self.single_login else self.sources.core.of("grants"))
        for part in self._units:
            grants = [] if self.single_login else part.of("grants")
            yield Step(grants, _among(part.name, "parts"))
            yield Step(part.of("registration"), _among(part.name, "replaced"))
        yield Step([self._section("record")])

    @property
    def _preparing(self) -> list[SqlPiece]:
        """Workers continue meanwhile: if a lock is not available soon, the whole migration is retried."""
        # Less than deadlock_timeout, so that a deadlock ends the migration and not a client.
        limits = "set local check_function_bodies = off;\nset local lock_timeout = '500ms';\n"
        return [
            SqlPiece("limits", limits),
            self._section("take_tables"),
            self._section("defaults"),
        ]

    @property
    def _dropping_stale(self) -> list[SqlPiece]:
        return [
            SqlPiece("functions to come", _setting("functions", self.sources.function_headers)),
            self._section("find_stale_functions"),
            self._section("drop_stale_views"),
            self._section("drop_stale_functions"),
        ]

    @property
    def _replacing(self) -> Iterator[Step]:
        """Only the parts that have changed. If views have to be dropped, it becomes all of them."""
        for part in self._parts:
            yield Step(part.functions, _among(part.name, "replaced"))
        yield Step(
            [
                self._section("protect_facts"),
                SqlPiece("views to come", _setting("views", self.sources.view_queries)),
                self._section("find_stale_views"),
                self._section("drop_stale_views"),
            ]
        )
        # Those of units first: core reads some of them.
        for part in [*self._parts[1:], self.sources.core]:
            yield Step(part.views, _among(part.name, "replaced"))
        yield Step(self.sources.core.functions_on_views, _among(optional_units.CORE, "replaced"))

    def _section(self, name: str) -> SqlPiece:
        return self.sources.section("install.sql", name)

    @property
    def _units(self) -> list[Part]:
        """Without those that this migration never installs."""
        return [part for part in self.sources.units if part.unit not in self.choice.unwanted]

    @property
    def _parts(self) -> list[Part]:
        absent = [part for part in self.sources.absent if part.unit not in self.choice.wanted]
        return [self.sources.core, *self._units, *absent]

    def _settings(self) -> str:
        return (
            "set local search_path = pg_catalog, pg_temp;\n"
            "set local client_min_messages = warning;\n"
            + _setting("version", str(self.sources.version))
            + _setting("release", __version__)
            + _setting("digest", self.sources.digest)
            + _setting("offered", self.sources.offered)
            + _setting("wanted", _array(self.choice.wanted))
            + _setting("unwanted", _array(self.choice.unwanted))
            + _setting("force", "on" if self.force else "off")
            + _setting("single_login", "on" if self.single_login else "off")
        )


def _setting(name: str, value: str) -> str:
    """Settings pass values to the DO blocks of install.sql, which take no parameters."""
    quoted = value.replace("'", "''")
    return f"set local holdfast.{name} = '{quoted}';\n"


def _array(names: Iterable[str]) -> str:
    return "{" + ",".join(sorted(names)) + "}"


def _among(name: str, setting: str) -> str:
    """Whether a part is in a list of names that install.sql has set."""
    return f"'{name}' = any (current_setting('holdfast.{setting}')::text[])"


def script(
    sources: Sources | None = None, *, single_login: bool = False, choice: Choice | None = None
) -> str:
    """A script for psql that installs or upgrades. It can be applied any number of times."""
    steps = MigrationSteps(sources or Sources(), single_login=single_login, choice=choice or Choice())
    lines = [
        f"-- Holdfast {__version__}, version {steps.sources.version} of the schema. Apply with: psql --file",
        r"\set ON_ERROR_STOP on",
        r"\set QUIET on",
        r"\encoding UTF8",
        "begin isolation level read committed read write;",
        *_texts(steps.deciding),
        r"select current_setting('holdfast.action') = 'nothing' as holdfast_nothing \gset",
        r"\if :holdfast_nothing",
        r"\set holdfast_done 'nothing to do'",
        r"\else",
        r"\set holdfast_done 'done'",
        *(line for step in steps.applying for line in _if_needed(step)),
        r"\endif",
        "commit;",
        r"\echo :holdfast_done",
    ]
    return "\n".join(lines) + "\n"


def _texts(pieces: Iterable[SqlPiece]) -> list[str]:
    return [f"\n-- {piece.name}\n{piece.sql}" for piece in pieces]


def _if_needed(step: Step) -> list[str]:
    texts = _texts(step.pieces)
    if step.condition is None or not texts:
        return texts
    asked = rf"select {step.condition} as holdfast_needed \gset"
    return [asked, r"\if :holdfast_needed", *texts, r"\endif"]
