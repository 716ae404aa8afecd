"""Blocks that no test can run are at least what they claim to be, and call only functions that exist."""

import configparser
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer

from support.commands import app
from support.documents import REFERENCE, ROOT, blocks, code, name_of, pages, prose

LANGUAGES = {
    "",
    "console",
    "diff",
    "dockerfile",
    "html",
    "ini",
    "json",
    "python",
    "sh",
    "sql",
    "text",
    "toml",
    "yaml",
}
ROOT_COMMAND = typer.main.get_command(app)
HELP = {"--help", "-h"}
yaml: Any = import_module("yaml")  # comes with MkDocs, and has no types

# What a server says of a statement that it does not understand, or that names what is not there.
NOT_UNDERSTOOD = {"42601", "42703", "42883", "42P01"}

_INLINE = re.compile(r"`(holdfast [a-z][^`]*)`")


def _commands(page: Path) -> Iterator[str]:
    """Each line of a page that calls holdfast, without what stands around it."""
    text = page.read_text()
    yield from (" ".join(found.split()) for found in _INLINE.findall(prose(text)))
    for language, block in blocks(text):
        if language in {"sh", "console", ""}:
            for line in block.splitlines():
                called = re.match(r"^(?:\$ )?(?:\w+=(?:\"[^\"]*\"|\S*) )*(?:\S*/)?(holdfast [a-z-].*)$", line)
                if called:
                    yield called[1]


def wrong_call(line: str) -> str | None:
    """What a call names that is not there."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = []
    for word in list(lexer)[1:]:
        if set(word) <= set("|&;<>"):
            break
        words.append(word)
    command: Any = ROOT_COMMAND
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"{line}: there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    options = HELP | {
        name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
    }
    unknown = [
        word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in options
    ]
    return f"{line}: there is no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("holdfast show ID --provenance", False),
        ("holdfast events tail -n 3 | head", False),
        ("holdfast migrate --sql > holdfast.sql", False),
        ("holdfast shoe ID", True),
        ("holdfast events tale", True),
        ("holdfast show ID --provenence", True),
    ],
)
def test_a_call_is_right_or_wrong(line: str, wrong: bool) -> None:
    assert (wrong_call(line) is not None) == wrong


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_calls_only_commands_and_options_that_exist(page: Path) -> None:
    assert [wrong for line in _commands(page) if (wrong := wrong_call(line))] == []


def test_a_page_makes_only_what_can_be_made() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in pages():
        text = page.read_text()
        called = set(re.findall(r"`make ([a-z][\w-]*)", text))
        called |= {
            word
            for _, block in blocks(text)
            for word in re.findall(r"^make ([a-z][\w-]*)", block, re.MULTILINE)
        }
        assert called - targets == set(), name_of(page)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_blocks_are_what_they_claim_to_be(page: Path) -> None:
    text = page.read_text()
    assert {language for language, _ in blocks(text)} <= LANGUAGES
    for block in code(text, "json"):
        if block.startswith("{\n"):
            json.loads(block)
        else:  # one document per line
            [json.loads(line) for line in block.splitlines()]
    for block in code(text, "toml"):
        tomllib.loads(block)
    for block in code(text, "ini"):
        configparser.RawConfigParser(strict=False).read_string(block)
    for block in code(text, "yaml"):
        for document in yaml.safe_load_all(block):
            is_named = block.startswith(("# /etc/", "# values.yaml"))
            assert is_named or {"apiVersion", "kind", "metadata"} <= document.keys()
    if commands := code(text, "sh"):
        read = subprocess.run(
            ["bash", "-n"], input="\n".join(commands), text=True, capture_output=True, check=False
        )
        assert read.returncode == 0, read.stderr


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_applications_on_pages_can_be_imported(page: Path) -> None:
    """Those that are complete, and no file of a walkthrough: all their options exist."""
    for block in code(page.read_text(), "python"):
        if re.search(r"^app = App\(", block, re.MULTILINE) and not block.startswith("# "):
            names: dict[str, Any] = {"__name__": "page"}
            exec(compile(block, name_of(page), "exec"), names)  # noqa: S102 - our own page
            assert names["app"].tasks


def _refusal(tx: psycopg.Connection[Any], statement: str) -> psycopg.Error | None:
    try:
        with tx.transaction(force_rollback=True):
            tx.execute(statement.encode())
    except psycopg.Error as error:
        return error
    return None


def test_statements_on_pages_are_understood_by_the_server(tx: psycopg.Connection[Any]) -> None:
    signatures = {
        REFERENCE / "sql.md",
        REFERENCE / "comms.md",
    }  # tests of their own compare these with the catalog
    for page in set(pages()) - signatures:
        for block in code(page.read_text(), "sql"):
            for statement in filter(str.strip, block.split(";")):
                refusal = _refusal(tx, statement)
                assert getattr(refusal, "sqlstate", None) not in NOT_UNDERSTOOD, f"{name_of(page)}: {refusal}"
