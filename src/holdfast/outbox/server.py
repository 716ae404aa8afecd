"""The address of a broker, as a target gives it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from holdfast.errors import ConfigurationError
from holdfast.outbox.sink import Place


@dataclass(frozen=True)
class Server:
    scheme: str
    host: str
    port: int
    login: str = field(repr=False)

    @property
    def address(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    def at(self, address: str) -> str:
        """The same server, under one of its addresses."""
        host = f"[{address}]" if ":" in address else address
        return f"{self.scheme}://{self.login}{host}:{self.port}"


def read_server(place: Place, ports: Mapping[str, int]) -> Server:
    """Raise ConfigurationError if it is no URL of these schemes.

    What follows a question mark can name files of the dispatcher, such as a key, or turn the check of
    certificates off. So it counts only where the dispatcher's own environment has the target.
    """
    expected = " or ".join(f"{scheme}://HOST" for scheme in ports)
    try:
        parts = urlsplit(place.target)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError(f"the target is not a URL such as {expected}") from None
    if not host or parts.scheme not in ports:
        raise ConfigurationError(f"the target is not a URL such as {expected}")
    if (parts.query or parts.fragment) and not place.is_reference:
        raise ConfigurationError(
            "the target has options after a question mark",
            hint="Keep it in a variable of the dispatcher, and give env:HOLDFAST_SINK_NAME as the target.",
        )
    login = parts.netloc.rpartition("@")[0]
    return Server(parts.scheme, host, port or ports[parts.scheme], f"{login}@" if login else "")
