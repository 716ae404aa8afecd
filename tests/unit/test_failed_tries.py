"""What a child process tells of a failed try: names end in the log, and in labels that stay in memory."""

from holdfast.isolation.child_messages import FAILED_TRY, MAX_SHOWN, MessageLimits, decode, encode

LONG = "x" * 15_000


def test_long_names_of_a_failed_try_are_cut() -> None:
    failed = {"name": LONG, "function": LONG, "number": 1, "tries": 2, "retry_at": None}
    error = {"kind": LONG, "exception": LONG, "message": "it broke"}
    limits = MessageLimits(result=1024)
    told = decode(encode(FAILED_TRY, {"run": 1, "failed": failed | {"error": error}}, [], limits), limits)
    assert told.failed is not None
    names = [
        told.failed.name,
        told.failed.function,
        told.failed.error["kind"],
        told.failed.error["exception"],
    ]
    assert names == [LONG[:MAX_SHOWN]] * 4
    assert (told.failed.number, told.failed.error["message"]) == (1, "it broke")
