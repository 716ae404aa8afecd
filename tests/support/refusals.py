"""What enqueue refuses, alone or in a batch: the arguments, the code, what the message names."""

from typing import Any

import pytest

from support.engine import JsonText


def _nested(levels: int) -> JsonText:
    return JsonText("[" * levels + "]" * levels)


def _big(size: int) -> dict[str, str]:
    return {"text": "x" * size}


# As a payload each of them is a few bytes, and some render to megabytes.
NUMBERS = {
    "1e400": "[1e400]",
    "minus 1e400": "[-1e400]",
    "1e-400": "[1e-400]",
    "minus 1e-400": '{"deep": [{"er": -1e-400}]}',
    "just above the largest double": "[1.8e308]",
    "4,301 digits": "[" + "9" * 4301 + "]",
    "1e131071": "[1e131071]",
    "1e131071 many times": "[" + ",".join(["1e131071"] * 500) + "]",
    "1e131071 behind a long text": '["' + "x" * 9000 + '", 1e131071]',
    "1e-16383": "[1e-16383]",
}

_NAMES = [
    *("", " ", "a b", "a\tb", "a\n", "a\x01b", "a\x7f", "a\x85b", "\u00a0", "a\u2003", "\u3000a", "\ufeffa"),
    *(".a", "a.", "a..b", ":a", "a:", "a.:b", "x" * 201),
]

REFUSALS: list[Any] = [
    *(pytest.param({"type": name}, "QF400", "type", id=f"type {name[:9]!r}") for name in _NAMES),
    *(pytest.param({"queue": name}, "QF400", "queue", id=f"queue {name[:9]!r}") for name in _NAMES),
    pytest.param({"type": "\u00e9" * 101}, "QF400", "type", id="type of 202 bytes"),
    pytest.param({"payload": _big(262_144)}, "QF413", "payload", id="payload over 256 KiB"),
    pytest.param({"payload": _big(5_000_000)}, "QF413", "payload", id="payload of 5 MB"),
    pytest.param({"payload": _nested(66)}, "QF422", "payload", id="payload 65 levels deep"),
    pytest.param({"payload": _nested(5000)}, "QF422", "payload", id="payload 5000 levels deep"),
    *(
        pytest.param({"payload": JsonText(text)}, "QF422", "payload", id=f"payload with {name}")
        for name, text in NUMBERS.items()
    ),
    pytest.param({"payload": JsonText("null")}, "QF400", "payload", id="payload JSON null"),
    pytest.param({"metadata": []}, "QF400", "metadata", id="metadata that is an array"),
    pytest.param({"metadata": "text"}, "QF400", "metadata", id="metadata that is a text"),
    pytest.param({"metadata": _big(16_384)}, "QF413", "metadata", id="metadata over 16 KiB"),
    pytest.param({"metadata": JsonText('{"n": 1e400}')}, "QF422", "metadata", id="metadata with 1e400"),
    pytest.param({"executor": "cobol"}, "QF400", "executor", id="executor that is unknown"),
    pytest.param({"executor": ""}, "QF400", "executor", id="executor that is empty"),
    *(
        pytest.param({"max_attempts": number}, "QF400", "max_attempts", id=f"max_attempts {number}")
        for number in (0, -1, 1001, 2_147_483_647)
    ),
    *(
        pytest.param({"priority": number}, "QF400", "priority", id=f"priority {number}")
        for number in (1_000_000_000, -1_000_000_000, 2_147_483_647, -2_147_483_648)
    ),
    *(
        pytest.param({"run_at": time}, "QF400", "run_at", id=f"run_at {time}")
        for time in (
            "infinity",
            "-infinity",
            "0044-03-15 12:00:00+00 BC",
            "1969-12-31 23:59:59+00",
            "2199-01-01 00:00:00+00",
            "294276-12-31 23:59:59+00",
        )
    ),
    *(
        pytest.param({"timeout": length}, "QF400", "timeout", id=f"timeout {length}")
        for length in ("0", "-1 second", "0.0001 seconds", "31 days", "1 year", "999999999 hours")
    ),
    *(
        pytest.param({"lease": length}, "QF400", "lease", id=f"lease {length}")
        for length in ("0", "-1 second", "0.5 seconds", "25 hours", "1 month", "999999999 hours")
    ),
    pytest.param({"idempotency_key": ""}, "QF400", "idempotency_key", id="idempotency_key that is empty"),
    pytest.param({"idempotency_key": "k" * 501}, "QF400", "idempotency_key", id="idempotency_key too long"),
    *(pytest.param({name: None}, "QF400", name, id=f"{name} null") for name in ("type", "payload")),
]
