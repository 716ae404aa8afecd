"""Executors email and sms: before-handler, provider, then a handler with the outcome in its transaction."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.comms.provider import Email, SendFailed
from holdfast.errors import ConfigurationError
from holdfast.worker import executors
from support.business import ask, entries, make_application, make_function
from support.post_office import PostOffice
from support.workshop import Workshop

MESSAGE = {"to": "ada@example.com", "subject": "Hello", "text": "Hello, Ada", "idempotency_key": "send-1"}
PREPARES = """return jsonb_build_object('success', true, 'payload', payload -> 'message');"""
RECORDS = """insert into app.ledger values (coalesce(
    'sent ' || (payload #>> '{worker_payload,message_id}'), 'failed ' || (payload #>> '{error,kind}')));
  return '{"success": true}';"""


@pytest.fixture
def post_office() -> PostOffice:
    return PostOffice()


@pytest.fixture(autouse=True)
def application(shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    make_application(shop.conn)
    make_function(shop.conn, "prepare", PREPARES)
    make_function(shop.conn, "sent", RECORDS)
    make_function(shop.conn, "failed", RECORDS)
    monkeypatch.setattr(executors, "email_provider", lambda _: post_office)
    monkeypatch.setattr(executors, "sms_provider", lambda _: post_office)


def send(shop: Workshop, task_type: str = "email", **more: Any) -> Any:
    options = {name: more.pop(name) for name in ("max_attempts", "timeout", "lease") if name in more}
    payload = {
        "task_type": task_type,
        "message": MESSAGE,
        "before_handler": "app.prepare",
        "success_handler": "app.sent",
        "error_handler": "app.failed",
        **more,
    }
    return ask(shop.conn, {name: value for name, value in payload.items() if value is not None}, **options)


def handled(shop: Workshop, function: str) -> None:
    """Let a handler keep what it is given."""
    make_function(
        shop.conn, function, "insert into app.ledger values (payload::text); return '{\"success\": true}';"
    )


async def test_what_the_before_handler_answers_is_sent_and_recorded(
    shop: Workshop, post_office: PostOffice
) -> None:
    async with shop.working():
        row = await shop.ended(send(shop))

    (email,) = post_office.calls
    assert (email.to, email.text, email.idempotency_key) == ("ada@example.com", "Hello, Ada", "send-1")
    assert row["status"] == "succeeded"
    assert row["result"] == {"provider": "post_office", "message_id": "id-1", "detail": {"queued": True}}
    assert entries(shop.conn) == ["sent id-1"]
    assert post_office.closed


async def test_the_outcome_is_in_the_transaction_of_the_handler(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.replies += [None, SendFailed("down", "the provider is down")]
    async with shop.working():
        for task in (send(shop), send(shop)):
            await shop.ended(task)

    pairs = shop.conn.execute(
        """select (select array_agg(xmin::text order by xmin::text) from app.ledger)
             = (select array_agg(xmin::text order by xmin::text) from queues.outcome)"""
    ).fetchone()
    assert pairs == (True,)


async def test_a_text_message_takes_the_same_way(shop: Workshop, post_office: PostOffice) -> None:
    async with shop.working():
        row = await shop.ended(send(shop, "sms", message={"to": "+4915112345678", "text": "Hello"}))

    (sms,) = post_office.calls
    assert (sms.to, sms.text) == ("+4915112345678", "Hello")
    assert row["status"] == "succeeded"


async def test_without_a_before_handler_the_payload_is_the_message(
    shop: Workshop, post_office: PostOffice
) -> None:
    async with shop.working():
        task = send(shop, before_handler=None, message=None, to="bob@example.com", subject="S", html="<p>")
        await shop.ended(task)

    (email,) = post_office.calls
    assert isinstance(email, Email)
    assert (email.to, email.html, email.text) == ("bob@example.com", "<p>", None)
    assert email.idempotency_key == f"holdfast-{task}"


async def test_the_success_handler_gets_the_payload_as_it_came_and_what_the_provider_said(
    shop: Workshop,
) -> None:
    handled(shop, "sent")
    async with shop.working():
        task = send(shop, extra={"n": 0.5})
        await shop.ended(task)

    kept = shop.conn.execute(
        """select l.entry::jsonb -> 'original_payload' = t.payload, l.entry::jsonb -> 'worker_payload'
           from app.ledger l, queues.task t"""
    ).fetchone()
    assert kept == (True, {"provider": "post_office", "message_id": "id-1", "detail": {"queued": True}})


async def test_the_error_handler_gets_the_payload_as_it_came_and_what_went_wrong(
    shop: Workshop, post_office: PostOffice
) -> None:
    handled(shop, "failed")
    post_office.replies.append(SendFailed("rate_limited", "slow down", retry_after=90))
    async with shop.working():
        task = send(shop)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    kept = shop.conn.execute(
        "select entry::jsonb -> 'original_payload' ->> 'task_type', entry::jsonb -> 'error' from app.ledger"
    ).fetchone()
    assert kept == (
        "email",
        {
            "kind": "rate_limited",
            "message": "slow down",
            "permanent": False,
            "outcome_unknown": False,
            "retry_after": 90,
            "key_seconds": None,
            "task_id": str(task),
            "provider": "post_office",
        },
    )
    assert (row["status"], row["attempt"]) == ("failed", 1)
    assert (error["kind"], error["message"]) == ("rate_limited", "slow down")


async def test_a_validation_failure_of_the_before_handler_is_final_and_nothing_is_sent(
    shop: Workshop, post_office: PostOffice
) -> None:
    make_function(
        shop.conn, "prepare", """return '{"success": false, "validation_failure_message": "closed"}';"""
    )
    async with shop.working():
        task = send(shop)
        row = await shop.ended(task)
        (error,) = await shop.errors(task)

    assert post_office.calls == []
    assert (row["status"], error["kind"]) == ("failed", "validation_failure")
    assert error["message"] == "app.prepare: closed"
    assert error["detail"]["permanent"] is True
    assert entries(shop.conn) == ["failed validation_failure"]


async def test_a_before_handler_that_breaks_is_tried_again_and_then_told_to_the_error_handler(
    shop: Workshop, post_office: PostOffice
) -> None:
    make_function(shop.conn, "prepare", "raise exception 'no such column';")
    async with shop.working():
        task = send(shop, max_attempts=2)
        row = await shop.ended(task)
        errors = await shop.errors(task)

    assert post_office.calls == []
    assert [error["kind"] for error in errors] == ["function_failed", "before_handler_failed"]
    assert (row["status"], row["attempt"]) == ("failed", 2)
    assert entries(shop.conn) == ["failed before_handler_failed"]


async def test_a_before_handler_that_answers_neither_a_payload_nor_a_refusal_has_broken(
    shop: Workshop, post_office: PostOffice
) -> None:
    no_payload = ['{"success": true, "payload": [1]}', '{"success": true}']
    no_envelope = ["null", "[]", '{"success": false}', '{"payload": {"to": "ada@example.com"}}']
    make_function(shop.conn, "prepare", "return (payload ->> 'answer')::jsonb;")
    async with shop.working():
        tasks = [send(shop, answer=answer, max_attempts=1) for answer in [*no_payload, *no_envelope]]
        await shop.ended(*tasks)
        errors = [error for task in tasks for error in await shop.errors(task)]

    assert post_office.calls == []
    assert {error["kind"] for error in errors} == {"before_handler_failed"}
    told = [error["message"] for error in errors]
    assert told[:2] == ["app.prepare: returned no object as the payload for the provider"] * 2
    assert all(message.startswith("app.prepare: returned ") for message in told)
    assert entries(shop.conn) == ["failed before_handler_failed"] * 6


async def test_a_handler_that_does_not_exist_is_a_failure_for_good(
    shop: Workshop, post_office: PostOffice
) -> None:
    async with shop.working():
        first = await shop.ended(send(shop, before_handler="app.missing"))
        second = await shop.ended(send(shop, success_handler="app.missing"))

    assert (first["status"], second["status"]) == ("failed", "failed")
    assert len(post_office.calls) == 1
    assert second["error"]["kind"] == "function_not_found"
    assert second["error"]["detail"]["known"]["sent"]["message_id"] == "id-1"
    assert entries(shop.conn) == ["failed before_handler_failed"]


@pytest.mark.parametrize(
    "message",
    [{"subject": "S", "text": "t"}, {**MESSAGE, "to": 7}, {**MESSAGE, "headers": {"a": 1}}],
    ids=["no recipient", "a number as recipient", "a number in headers"],
)
async def test_a_message_of_another_shape_is_not_sent(
    shop: Workshop, post_office: PostOffice, message: Any
) -> None:
    async with shop.working():
        await shop.ended(send(shop, message=message))

    assert post_office.calls == []
    assert entries(shop.conn) == ["failed malformed"]


async def test_a_payload_that_names_no_functions_fails_the_task(shop: Workshop) -> None:
    payloads: list[Any] = [[], {"task_type": "email", "error_handler": 7}]
    async with shop.working():
        for payload in payloads:
            row = await shop.ended(ask(shop.conn, payload, executor="email"))
            assert (row["status"], row["error"]["kind"]) == ("failed", "invalid_payload")


async def test_a_provider_that_breaks_its_word_leaves_an_unknown_outcome(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.replies.append(ZeroDivisionError("oops"))
    async with shop.working():
        row = await shop.ended(send(shop))

    assert row["error"]["detail"]["outcome_unknown"] is True
    assert "ZeroDivisionError: oops" in row["last_error"]
    assert entries(shop.conn) == ["failed provider_failed"]


async def test_a_provider_that_does_not_answer_in_time_leaves_an_unknown_outcome(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.replies.append(asyncio.Event().wait)
    async with shop.working():
        row = await shop.ended(send(shop, timeout="200ms"))

    assert row["error"]["detail"]["outcome_unknown"] is True
    assert entries(shop.conn) == ["failed timeout"]


async def test_where_the_key_is_recognised_the_outcome_is_unknown_and_may_be_repeated_for_a_time(
    shop: Workshop, post_office: PostOffice
) -> None:
    post_office.key_retention = timedelta(hours=24)
    post_office.replies.append(SendFailed("outcome_unknown", "cut", outcome_unknown=True))
    async with shop.working():
        row = await shop.ended(send(shop))

    detail = row["error"]["detail"]
    assert (detail["outcome_unknown"], detail["key_seconds"]) == (True, 0.95 * 86400)


async def test_settings_that_a_provider_cannot_use_leave_the_task_to_another_worker(
    shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(settings: Any) -> Any:
        raise ConfigurationError("HOLDFAST_RESEND_API_KEY is missing")

    monkeypatch.setattr(executors, "email_provider", refuse)
    async with shop.working():
        task = send(shop)
        row = await shop.becomes(task, "retrying")
    assert row["error"]["kind"] == "provider_not_configured"
    monkeypatch.setattr(executors, "email_provider", lambda _: post_office)
    shop.conn.execute("select queues.reschedule(%s, queues.clock())", [task])
    async with shop.working():
        row = await shop.ended(task)

    assert (row["status"], len(post_office.calls)) == ("succeeded", 1)


class TestBeforeTheProvider:
    """What fails before the provider is called was not sent: its cause is told, and no outcome is unknown."""

    async def test_a_provider_that_stays_unusable_is_told_to_the_error_handler(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(settings: Any) -> Any:
            raise ConfigurationError("HOLDFAST_RESEND_API_KEY is not set")

        handled(shop, "failed")
        monkeypatch.setattr(executors, "email_provider", refuse)
        async with shop.working():
            row = await shop.ended(send(shop, max_attempts=1))

        error = _told(shop)
        assert (row["status"], error["kind"]) == ("failed", "provider_not_configured")
        assert error["message"] == "HOLDFAST_RESEND_API_KEY is not set"
        assert (error["permanent"], error["outcome_unknown"]) == (False, False)

    @pytest.mark.parametrize(
        ("refusal", "kind"),
        [
            (SendFailed("cap_reached", "too many", retry_after=60), "cap_reached"),
            (TimeoutError(), "timeout"),
            (ZeroDivisionError("oops"), "preparation_failed"),
        ],
        ids=["a cap", "a time-out", "a mistake"],
    )
    async def test_what_the_guard_refuses_was_not_sent(
        self, shop: Workshop, post_office: PostOffice, refusal: BaseException, kind: str
    ) -> None:
        handled(shop, "failed")
        post_office.refusal = refusal
        async with shop.working():
            await shop.ended(send(shop, max_attempts=1))

        error = _told(shop)
        assert (error["kind"], error["outcome_unknown"], post_office.calls) == (kind, False, [])

    async def test_a_worker_that_serves_messages_does_not_start_without_its_provider(
        self, shop: Workshop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        for subscription in (
            {"worker_queues": "comms"},
            {"worker_queues": "", "worker_type_prefixes": "comms."},
        ):
            with pytest.raises(ConfigurationError, match="HOLDFAST_RESEND_API_KEY is not set"):
                shop.worker(email_provider="resend", **subscription)
        shop.worker(email_provider="resend", worker_queues="work")

    async def test_another_provider_does_not_repeat_what_may_have_been_delivered(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        handled(shop, "failed")
        async with shop.working():
            await shop.ended(send(shop, message={**MESSAGE, "only_provider": "resend"}))

        error = _told(shop)
        assert (error["kind"], error["permanent"], post_office.calls) == ("provider_changed", True, [])


def _told(shop: Workshop) -> Any:
    kept = shop.conn.execute("select entry::jsonb -> 'error' from app.ledger").fetchone()
    assert kept
    return kept[0]


async def test_the_address_is_in_no_error_and_no_result(shop: Workshop, post_office: PostOffice) -> None:
    post_office.replies.append(SendFailed("rejected", "550 <ADA@example.com> no such user", permanent=True))
    async with shop.working():
        row = await shop.ended(send(shop))

    assert row["last_error"] == "550 <…> no such user"


class TestWithoutHandlers:
    """No function in the database waits for the outcome: the attempts of the task apply."""

    async def test_a_success_is_the_result(self, shop: Workshop) -> None:
        async with shop.working():
            row = await shop.ended(send(shop, success_handler=None, error_handler=None))

        assert row["result"]["message_id"] == "id-1"

    async def test_a_passing_failure_is_retried(self, shop: Workshop, post_office: PostOffice) -> None:
        post_office.replies.append(SendFailed("unavailable", "503", retry_after=0.1))
        async with shop.working():
            row = await shop.ended(send(shop, success_handler=None, error_handler=None))

        assert (row["status"], row["attempt"], len(post_office.calls)) == ("succeeded", 2, 2)

    @pytest.mark.parametrize("how", ["permanent", "outcome_unknown"])
    async def test_any_other_is_final(self, shop: Workshop, post_office: PostOffice, how: str) -> None:
        post_office.replies.append(SendFailed("failed", "no", **{how: True}))
        async with shop.working():
            row = await shop.ended(send(shop, success_handler=None, error_handler=None))

        assert (row["status"], len(post_office.calls)) == ("failed", 1)


class TestRecording:
    """What the provider did is recorded, however long that takes; it is not done again."""

    async def test_a_handler_that_breaks_for_a_moment_is_called_again(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        shop.conn.execute("create sequence app.tries; alter sequence app.tries owner to app_owner")
        make_function(
            shop.conn,
            "sent",
            "if nextval('app.tries') < 3 then raise exception 'not yet'; end if;" + RECORDS,
        )
        async with shop.working():
            row = await shop.ended(send(shop))

        assert (row["status"], row["attempt"], len(post_office.calls)) == ("succeeded", 1, 1)
        assert entries(shop.conn) == ["sent id-1"]

    @pytest.mark.parametrize("reply", [None, SendFailed("down", "down")], ids=["sent", "failed"])
    async def test_a_handler_that_stays_broken_is_called_by_the_next_attempt_with_what_was_known(
        self, shop: Workshop, post_office: PostOffice, monkeypatch: pytest.MonkeyPatch, reply: Any
    ) -> None:
        monkeypatch.setattr("holdfast.executors.message.PAUSES_SECONDS", (0.01,))
        post_office.replies.append(reply)
        for function in ("sent", "failed"):
            make_function(shop.conn, function, "raise exception 'broken';")
        async with shop.working():
            task = send(shop)
            row = await shop.becomes(task, "retrying")
            assert row["error"]["kind"] == "recording_failed"
            for function in ("sent", "failed"):
                make_function(shop.conn, function, RECORDS)
            row = await shop.ended(task)

        assert (row["attempt"], len(post_office.calls)) == (2, 1)
        assert entries(shop.conn) == (["sent id-1"] if reply is None else ["failed down"])

    async def test_a_validation_failure_of_a_handler_is_final(self, shop: Workshop) -> None:
        make_function(
            shop.conn,
            "sent",
            """insert into app.ledger values ('late');
               return '{"success": false, "validation_failure_message": "too late"}';""",
        )
        async with shop.working():
            row = await shop.ended(send(shop))

        assert (row["status"], row["last_error"]) == ("failed", "app.sent: too late")
        assert row["error"]["detail"]["sent"]["message_id"] == "id-1"
        assert entries(shop.conn) == ["late"]

    async def test_what_the_provider_says_is_made_storable(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.replies.append(SendFailed("odd", "a\0b \ud800"))
        async with shop.working():
            row = await shop.ended(send(shop))

        assert row["last_error"] == "a\ufffdb \ufffd"
        assert entries(shop.conn) == ["failed odd"]


async def _die_while_it_is_sent(shop: Workshop, post_office: PostOffice, **more: Any) -> Any:
    """A worker that has handed a message over and ended before it could tell; its lease has ended, too."""
    gate = asyncio.Event()
    post_office.replies.append(gate.wait)
    async with shop.working() as worker:
        task = send(shop, **more)
        await shop.sees(lambda: post_office.calls)
        shop.conn.execute("select queues.pause('work')")
        shop.conn.execute("update queues.lease set lease_until = queues.clock() - interval '1 second'")
        await shop.until("select from queues.error where recovered")
        gate.set()
        await shop.sees(lambda: worker.metrics.refused["lost"] == 1)
    shop.conn.execute("select queues.resume('work')")
    return task


class TestAfterADeath:
    """A worker ended between the provider's answer and the record of it."""

    async def test_without_a_key_the_outcome_is_recorded_as_unknown_and_nothing_is_sent_again(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        task = await _die_while_it_is_sent(shop, post_office)
        async with shop.working():
            row = await shop.ended(task)

        assert len(post_office.calls) == 1
        assert (row["status"], row["error"]["kind"]) == ("failed", "outcome_unknown")
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_with_a_key_it_is_sent_again_under_the_same_key(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.key_retention = timedelta(hours=24)
        task = await _die_while_it_is_sent(shop, post_office)
        async with shop.working():
            row = await shop.ended(task)

        assert [email.idempotency_key for email in post_office.calls] == ["send-1", "send-1"]
        assert (row["status"], list(post_office.delivered)) == ("succeeded", ["send-1"])
        assert entries(shop.conn) == ["sent id-2"]

    async def test_with_a_key_that_the_provider_has_forgotten_the_outcome_is_unknown(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.key_retention = timedelta(hours=24)
        task = await _die_while_it_is_sent(shop, post_office)
        shop.conn.execute("update queues.test_clock set shifted_by = interval '1 day'")
        async with shop.working():
            await shop.ended(task)

        assert len(post_office.calls) == 1
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_when_the_attempts_are_used_up_the_error_handler_is_called_all_the_same(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        task = await _die_while_it_is_sent(shop, post_office, max_attempts=1)
        async with shop.working():
            await shop.until("select from app.ledger")

        row = await shop.ended(task)
        assert (row["status"], len(post_office.calls)) == ("dead_letter", 1)
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_a_worker_that_is_stopped_in_the_middle_does_not_give_the_attempt_back(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        post_office.replies.append(asyncio.Event().wait)
        async with shop.working(grace="0s"):
            task = send(shop)
            await shop.sees(lambda: post_office.calls)
        row = await shop.becomes(task, "retrying")
        assert (row["attempt"], row["error"]["kind"]) == (1, "outcome_unknown")
        async with shop.working():
            await shop.ended(task)

        assert len(post_office.calls) == 1
        assert entries(shop.conn) == ["failed outcome_unknown"]

    async def test_a_worker_that_is_stopped_before_gives_it_back(
        self, shop: Workshop, post_office: PostOffice
    ) -> None:
        make_function(shop.conn, "prepare", "perform pg_advisory_xact_lock(42);" + PREPARES)
        gate = shop.db.connect(autocommit=False)
        gate.execute("select pg_advisory_xact_lock(42)")
        async with shop.working(grace="0s"):
            task = send(shop)
            await shop.until("select from pg_locks where locktype = 'advisory' and not granted")
        row = await shop.becomes(task, "pending")

        assert (row["attempt"], post_office.calls) == (0, [])


async def test_the_error_handler_hears_of_a_cancelled_attempt(
    shop: Workshop, post_office: PostOffice
) -> None:
    handled(shop, "failed")
    post_office.replies.append(asyncio.Event().wait)
    async with shop.working(heartbeat="100ms", lease="1s"):
        task = send(shop)
        await shop.sees(lambda: post_office.calls)
        shop.conn.execute("select queues.cancel(%s, 'wrong person')", [task])
        await shop.until("select from app.ledger")

    kept = shop.conn.execute("select entry::jsonb -> 'error' from app.ledger").fetchone()
    assert kept
    assert {"kind": "cancelled", "permanent": True, "outcome_unknown": True}.items() <= kept[0].items()
    assert kept[0]["message"] == "it was cancelled by postgres: wrong person"
