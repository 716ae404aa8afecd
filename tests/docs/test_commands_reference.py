"""docs/reference/commands.md describes every key of a command, and the envelope that is read."""

from holdfast._worker import envelope
from holdfast.settings.commands import Command
from support.documents import REFERENCE, rows, sections

PAGE = sections(REFERENCE / "commands.md")


def test_every_key_of_a_command_is_described() -> None:
    opening = (REFERENCE / "commands.md").read_text().partition("## The protocol")[0]
    assert {cells[0] for cells in rows(opening)} == set(Command.model_fields)


def test_every_member_of_the_envelope_is_described() -> None:
    assert {cells[0] for cells in rows(PAGE["The protocol"])} == {"success", "payload", *envelope.REASONS}
