"""JSON documents as applications send them: names, numbers, ids, times and sentences, no two alike.

A repeated letter would compress to nothing, and cost neither the network nor the disk what a payload does.
Only the standard library: adapters of other queues use it in their own environments.
"""

import json
import random
from functools import cache
from typing import Any

VARIANTS = 20
WORDS = """
invoice customer parcel warehouse delivery contract payment reminder address quarterly balance supplier
returned damaged express weekend signature pallet refund discount provisional approved rejected pending
measured calibrated shipped carrier customs declaration certificate replacement warranty inspection
""".split()  # noqa: SIM905 - as a text it can be read


def document(size: int, variant: int) -> dict[str, Any]:
    """An order whose JSON has about `size` bytes. The same variant is the same document in every run."""
    chosen = random.Random(f"{size}/{variant}")
    found: dict[str, Any] = {"order": _id(chosen), "total": round(chosen.uniform(5, 5000), 2)}
    if size <= 200:
        return {**found, "note": _sentence(chosen, 2)}
    found |= {"customer": _customer(chosen), "lines": []}
    written = len(json.dumps(found))
    while written < size:
        line = _line(chosen)
        found["lines"].append(line)
        written += len(json.dumps(line)) + 2
    return found


@cache
def documents(size: int) -> tuple[dict[str, Any], ...]:
    """A few to take in turn."""
    return tuple(document(size, variant) for variant in range(VARIANTS))


def _customer(chosen: random.Random) -> dict[str, Any]:
    name = f"{chosen.choice(WORDS).title()} {chosen.choice(WORDS).title()}"
    return {
        "id": chosen.randrange(10**9),
        "name": name,
        "email": f"{name.lower().replace(' ', '.')}{chosen.randrange(1000)}@example.com",
        "address": {"street": _sentence(chosen, 3), "number": chosen.randrange(300), "country": "DE"},
        "since": _time(chosen),
    }


def _line(chosen: random.Random) -> dict[str, Any]:
    return {
        "article": _id(chosen),
        "quantity": chosen.randrange(1, 40),
        "price": round(chosen.uniform(0.5, 900), 2),
        "in_stock": chosen.random() < 0.8,
        "expected": _time(chosen),
        "note": _sentence(chosen, chosen.randrange(4, 16)),
    }


def _id(chosen: random.Random) -> str:
    return f"{chosen.getrandbits(64):016x}"


def _time(chosen: random.Random) -> str:
    return f"2026-{chosen.randrange(1, 13):02}-{chosen.randrange(1, 29):02}T{chosen.randrange(24):02}:15:00Z"


def _sentence(chosen: random.Random, words: int) -> str:
    return " ".join(chosen.choices(WORDS, k=words))
