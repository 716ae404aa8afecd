"""holdfast skill: a page for coding agents, printed or written into a project."""

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.frame import add_commands
from holdfast.cli.report import Report
from holdfast.errors import ConfigurationError

NAME = "holdfast"
ABOUT = (
    "Write, test and run durable tasks and workflows with Holdfast (holdfast-pg) on PostgreSQL. Use it when "
    "code imports holdfast, or when work has to survive a crash, run later, run once or wait."
)


def register(app: typer.Typer) -> None:
    about = "Print a page for coding agents, or install it."
    skills = typer.Typer(name="skill", help=about, invoke_without_command=True)
    skills.callback()(skill)
    add_commands(skills, install)
    app.add_typer(skills)


def skill(ctx: typer.Context) -> None:
    """Print a page for coding agents: how to write, test and run tasks with this version."""
    if ctx.invoked_subcommand is None:
        typer.echo(skill_text(), nl=False)


def install(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Directory of the skills. Default: .agents/skills.")
    ] = Path(".agents/skills"),
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace a file with other contents.")] = False,
) -> Report:
    """Write the page to DIR/holdfast/SKILL.md."""
    path, text = directory / NAME / "SKILL.md", skill_text()
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text and not force:
            raise ConfigurationError(f"{path} has other contents", hint="--force replaces it.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be written: {error}") from error
    return Report({"path": path}, f"Wrote {path}")


def skill_text() -> str:
    """The page, below what agents read to decide whether they need it."""
    from holdfast.server.mcp.documentation import docs_directory  # noqa: PLC0415 - other commands start faster

    page = (docs_directory() / "skill.md").read_text(encoding="utf-8")
    return f"---\nname: {NAME}\ndescription: {ABOUT}\n---\n\n{page}"
