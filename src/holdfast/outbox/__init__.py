"""The dispatcher: claims events of the outbox and sends them to the sinks of their subscriptions."""

import asyncio
import logging
import signal

from holdfast.errors import ConfigurationError
from holdfast.logs import configure
from holdfast.postgres import resolve_database_url
from holdfast.schema import migrate
from holdfast.settings import Settings
from holdfast.supervision import end_with_parent

__all__ = ["run"]


def run(settings: Settings) -> int:
    """Send events in this process until it is signalled; answers the exit code."""
    configure(settings.log_format, settings.log_level)
    end_with_parent()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it has a line for every request
    try:
        from holdfast.outbox.dispatcher import Dispatcher  # noqa: PLC0415 - needs the packages of an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"dispatching needs the package {error.name}", hint="pip install 'holdfast[events]'"
        ) from None
    url = resolve_database_url(settings)
    if settings.database_url is None:
        migrate(url)

    async def serve() -> None:
        dispatcher = Dispatcher(url, settings)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, dispatcher.stop)
        await dispatcher.run()

    asyncio.run(serve())
    return 0
