"""Real brokers, each with a port and a directory of the test's own, to be stopped and started again."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from support.programs import needed

RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Broker:
    """A server in a process group of its own, because RabbitMQ is several processes."""

    def __init__(
        self, command: list[str | Path], environment: dict[str, str], port: int, hello: bytes
    ) -> None:
        self.port = port
        self._command = command
        self._environment = environment
        self._hello = hello
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            env=os.environ | self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait()

    def stop(self, number: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait(self) -> None:
        """Until it speaks: a port that is open may be that of a server which is still starting."""
        deadline = monotonic() + 110
        while True:
            assert self._process is not None
            assert self._process.poll() is None, "the broker ended by itself"
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    connection.sendall(self._hello)
                    connection.settimeout(1)
                    if connection.recv(1):
                        return
            except OSError:
                pass
            assert monotonic() < deadline, "the broker did not start"
            sleep(0.1)


@contextmanager
def nats_server(directory: Path) -> Iterator[Broker]:
    program = needed("nats-server", "ensure-nats-server")
    port = free_port()
    address = ["-a", "127.0.0.1", "-p", str(port)]
    broker = Broker([program, "-js", "-sd", directory, *address], {}, port, b"")
    try:
        broker.start()
        yield broker
    finally:
        broker.stop(signal.SIGKILL)


@contextmanager
def rabbitmq(directory: Path) -> Iterator[Broker]:
    needed("rabbitmq-server", "ensure-rabbitmq")
    port, names = free_port(), free_port()
    configuration = directory / "rabbitmq.conf"
    configuration.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    environment = {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"holdfast{port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(configuration),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
    }
    broker = Broker([RABBITMQ], environment, port, b"AMQP\x00\x00\x09\x01")
    # The broker would start this one by itself, and leave it behind.
    with subprocess.Popen(
        ["epmd"], env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as name_server:
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()
            name_server.kill()
