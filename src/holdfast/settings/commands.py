"""External programs that run tasks."""

import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from holdfast.resources import Resources
from holdfast.settings.values import AbsolutePath, Duration, Names, Size, between


class Command(BaseModel):
    """An external program that runs tasks: an entry of `[tool.holdfast.commands]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    types: Annotated[Names, Field(min_length=1)]
    environment: Names = ()
    directory: AbsolutePath | None = None
    timeout: Annotated[Duration, between("1ms", "30d")] | None = None
    cpu: Annotated[Duration, between("1s", "30d")] | None = None
    memory: Size | None = None
    files: Annotated[int, Field(ge=3)] | None = None
    processes: Annotated[int, Field(ge=1)] | None = None
    file_size: Size | None = None
    user: Annotated[str, Field(min_length=1)] | None = None

    @property
    def resources(self) -> Resources:
        return Resources(
            cpu=None if self.cpu is None else self.cpu.total_seconds(),
            memory=self.memory,
            files=self.files,
            processes=self.processes,
            file_size=self.file_size,
        )

    def suits(self, task_type: str) -> int:
        """How well it fits a type: the length of the entry that is the type or a prefix of it, else 0."""
        fitting = [
            name
            for name in self.types
            if name == task_type or (name.endswith((".", ":")) and task_type.startswith(name))
        ]
        return max(map(len, fitting), default=0)


def read_commands(value: object) -> object:
    """A table of TOML, or JSON in an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("give a JSON object of commands") from None
