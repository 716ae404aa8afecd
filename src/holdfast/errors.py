"""What can go wrong, as one tree.

HoldfastError
├── ConfigurationError      a setting cannot be used as given
└── EmbeddedServerError     the embedded PostgreSQL cannot be found, started or reached
"""

from typing import ClassVar


class HoldfastError(Exception):
    """Something that its message explains to the person who reads it."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(HoldfastError):
    """A setting cannot be used as given."""

    exit_code: ClassVar[int] = 2


class EmbeddedServerError(HoldfastError):
    """The embedded PostgreSQL cannot be found, started or reached."""
