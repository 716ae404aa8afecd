"""The module and name of an application, so that another process can import it."""

import importlib
import importlib.util
import os
import runpy
import sys
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from holdfast.errors import ConfigurationError

MAIN_IN_CHILD = "__holdfast_main__"
DJANGO_SETTINGS = "DJANGO_SETTINGS_MODULE"


@dataclass(frozen=True, slots=True)
class Origin:
    """A name in a module, or in a file that was run as a program."""

    module: str | None
    file: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.module or self.file}:{self.name}"

    def as_message(self) -> dict[str, Any]:
        return asdict(self)


def find_origin(application: object, given: str | None = None) -> Origin | None:
    """From MODULE:NAME, or by a search of all modules. None if it is not a global name of any."""
    found = None
    if given is not None:
        module_name, _, name = given.partition(":")
        return Origin(module_name, None, name)
    for module_name, module in list(sys.modules.items()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is application:
                found = _origin(module_name, module, name)
                if module_name != "__main__" and found is not None:
                    return found
    return found


def set_up_django() -> None:
    """Set up Django if DJANGO_SETTINGS_MODULE names its settings: models can be imported only afterwards."""
    named = os.environ.get(DJANGO_SETTINGS)
    if not named or importlib.util.find_spec("django") is None:
        return
    try:
        if not importlib.import_module("django.apps").apps.ready:
            importlib.import_module("django").setup()
    except ModuleNotFoundError as error:
        if error.name is None or not f"{named}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(
            f"{DJANGO_SETTINGS}={named!r} cannot be used: there is no module {error.name!r}",
            hint="Start the command in the directory of manage.py, or correct the variable.",
        ) from None


def load(origin: Origin) -> Any:
    """Import the application. The part of a program under `if __name__ == "__main__"` is not run."""
    set_up_django()
    if origin.module is not None:
        holder: Any = importlib.import_module(origin.module)
    else:
        holder = ModuleType(MAIN_IN_CHILD)
        sys.modules[MAIN_IN_CHILD] = sys.modules["__main__"] = holder
        holder.__dict__.update(runpy.run_path(origin.file or "", run_name=MAIN_IN_CHILD))
    for name in origin.name.split("."):
        holder = getattr(holder, name)
    return holder


def _origin(module_name: str, module: Any, name: str) -> Origin | None:
    if module_name != "__main__":
        return Origin(module_name, None, name)
    spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
    if spec is not None:
        return Origin(spec.name, None, name)
    return None if file is None else Origin(None, file, name)
