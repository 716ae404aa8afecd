"""Clients in a process of their own, which any release can run, until their standard input is closed."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from acceptance.mixed import Mixed
from acceptance.producer import Producer
from acceptance.witness import Witness


def main() -> None:
    """With the address and the path of the witness as arguments. Prints what they were told."""
    url, witness = sys.argv[1], Witness(Path(sys.argv[2]))
    load = Mixed(url)
    producer = Producer(url, per_second=60, seconds=(0.0, 0.02), started=witness.count_starts, name="old")
    with load.working(), producer.producing():
        print("working", flush=True)  # noqa: T201 - read by the test
        sys.stdin.read()
    told = {
        "cases": [asdict(case) for case in load.cases],
        "acknowledged": producer.acknowledged,
        "rolled_back": sorted(producer.rolled_back),
        "repeated": load.repeated + producer.repeated,
    }
    print(json.dumps(told, default=str))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
