"""When each job started, written by the handlers into a file that the driver reads while they run."""

import mmap
from pathlib import Path


class Slots:
    """One number per job: the nanosecond at which its handler started, or 0. One more counts repeats."""

    def __init__(self, path: Path, count: int) -> None:
        self.path = path
        self.count = count
        path.write_bytes(bytes(8 * (count + 1)))
        path.with_name(path.name + ".ready").unlink(missing_ok=True)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @property
    def is_ready(self) -> bool:
        """The worker has said that it is about to look for jobs."""
        return self.path.with_name(self.path.name + ".ready").exists()

    def starts(self) -> list[int]:
        with memoryview(self._map) as raw, raw.cast("Q") as numbers:
            return numbers.tolist()[: self.count]

    @property
    def started(self) -> int:
        return self.count - self.starts().count(0)

    @property
    def repeated(self) -> int:
        with memoryview(self._map) as raw, raw.cast("Q") as numbers:
            return numbers[self.count]
