"""The same migration as a script for psql, for those who let nothing but psql near their database."""

from collections.abc import Iterable

from holdfast import __version__
from holdfast.schema.sources import Piece, Sources
from holdfast.schema.steps import Steps


def script(sources: Sources | None = None) -> str:
    """Installs, upgrades, or finds nothing to do: it may be applied any number of times."""
    steps = Steps(sources or Sources())
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
        *_texts([*steps.making_room, *steps.replaying]),
        r"\endif",
        "commit;",
        r"\echo :holdfast_done",
    ]
    return "\n".join(lines) + "\n"


def _texts(pieces: Iterable[Piece]) -> list[str]:
    return [f"\n-- {piece.name}\n{piece.sql}" for piece in pieces]


def _if_older_than(number: int, piece: Piece) -> list[str]:
    return [
        rf"select :holdfast_version < {number} as holdfast_older \gset",
        r"\if :holdfast_older",
        *_texts([piece]),
        r"\endif",
    ]
