"""The options of enqueue are declared once: Python, HTTP, the command line, SQL and the reference agree."""

import json
import subprocess
import sys
from typing import Any

from holdfast.options import (
    ClientOptions,
    Options,
    client_options,
    is_arranged,
    parameters,
    python_options,
)
from support.database import Database
from support.documents import REFERENCE, rows, sections

# What a developer adds to the declaration: one field.
ADDED = """
import json
from typing import Annotated

from holdfast.options import Option, Options

Options.__annotations__["colour"] = Annotated[
    str | None,
    Option(
        "text",
        "The colour of the task.",
        schema={"minLength": 1, "maxLength": 9, "pattern": "^[a-z]+$", "examples": ["red"]},
    ),
]
"""
SEEN = """
from typer.testing import CliRunner

from holdfast import App
from holdfast.cli.command_line import build_app
from holdfast._engine.enqueue import enqueue, enqueue_many
from holdfast.errors import InvalidArgument
from holdfast.server.api.enqueue_request import request_models

app = App("postgresql://nowhere")
task = app.task("paint.wall")(lambda wall: None)
built = task.using(colour="red").build(wall=7)
try:
    task.using(color="red")
except InvalidArgument as error:
    misspelt = error.message
help_text = CliRunner().invoke(build_app(), ["enqueue", "--help"], env={"COLUMNS": "200"}).output
statement = enqueue(built)
print(json.dumps({
    "sql": statement.sql,
    "params": statement.params,
    "batch": json.loads(enqueue_many([built]).params[0]),
    "misspelt": misspelt,
    "schema": [model.model_json_schema()["properties"].get("colour") for model in request_models()],
    "help": [line for line in help_text.splitlines() if "--colour" in line],
}))
"""


def test_an_option_that_is_added_to_the_declaration_is_known_everywhere() -> None:
    ran = subprocess.run([sys.executable, "-c", ADDED + SEEN], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    seen: dict[str, Any] = json.loads(ran.stdout)
    assert "colour => $" in seen["sql"]
    assert "red" in seen["params"]
    [element] = seen["batch"]
    assert (element["colour"], element["payload"]) == ("red", {"wall": 7})
    assert seen["misspelt"] == "unknown option 'color'; did you mean 'colour'?"
    for schema in seen["schema"]:
        assert (schema["description"], schema["pattern"]) == ("The colour of the task.", "^[a-z]+$")
    assert len(seen["help"]) == 1
    assert "The colour of the task." in seen["help"][0]


def test_every_parameter_of_the_sql_function_is_declared(db: Database) -> None:
    found = db.connect().execute(
        "select proargnames from pg_catalog.pg_proc where oid = to_regproc('queues.enqueue')"
    )
    [names] = found.fetchone() or [None]
    # A delay becomes run_at on the database's clock. Tasks after others and unique ones have other functions.
    others = {name for name in parameters() if is_arranged({name: None})}
    assert set(names) - {"type", "payload"} == parameters().keys() - {"delay"} - others


def test_the_command_line_is_described_as_it_is_declared() -> None:
    described = {
        cells[0].split()[0].removeprefix("--").replace("-", "_"): cells[1]
        for cells in rows(sections(REFERENCE / "cli.md")["holdfast enqueue"])
    }
    for name, option in client_options().items():
        if option.command_line:
            assert described[name] == option.help.replace("`", "")


def test_the_decorator_decides_what_using_does_not_take() -> None:
    assert python_options().keys() == Options.__annotations__.keys()
    assert client_options().keys() - python_options().keys() == ClientOptions.__annotations__.keys()


def test_every_option_has_a_sentence_of_help() -> None:
    for option in client_options().values():
        assert option.help.endswith(".")
        assert "\n" not in option.help
