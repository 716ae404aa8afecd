"""Settings: declared in `groups`, loaded in `loading`."""

from holdfast.settings.loading import (
    WITHHELD,
    DispatcherSettings,
    Settings,
    provide_settings,
    variable_of,
)

__all__ = ["WITHHELD", "DispatcherSettings", "Settings", "provide_settings", "variable_of"]
