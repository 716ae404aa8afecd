"""A program that removes a disposable home when the test process ends: even kill -9 closes the pipe."""

import shutil
import sys
from pathlib import Path


def main(home: Path, version: int) -> None:
    print("ready", flush=True)  # noqa: T201 - the test process waits for it
    sys.stdin.read()

    from holdfast._install.postgres.embedded_server import EmbeddedServer  # noqa: PLC0415 - late, so that it is ready at once

    EmbeddedServer(home, version).stop("immediate")
    shutil.rmtree(home)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
