"""The HTTP sink, against a real server on this machine."""

import asyncio
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from standardwebhooks import Webhook

from holdfast._serialization.webhook_signature import new_secret
from holdfast.errors import ConfigurationError
from holdfast.outbox.destinations import DestinationForbidden
from holdfast.outbox.sink import SinkConfig, Undelivered, build_sink
from holdfast.outbox.sinks.http_sink import HttpSink
from outbox.test_cloud_event import EVENT_ID, outgoing
from support.receiver import Answer, Receiver, Request, receiving

HERE = ("127.0.0.0/8", "localhost")


def config_for(target: str, allowed: tuple[str, ...] = HERE, **options: Any) -> SinkConfig:
    return SinkConfig("test", target, options, Path(), allowed)


async def send(target: str, *secrets: str, allowed: tuple[str, ...] = HERE, **options: Any) -> None:
    sink = HttpSink(replace(config_for(target, allowed, **options), secrets=secrets))
    try:
        await sink.send(outgoing())
    finally:
        await sink.close()


def answering(status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Any:
    async def answer(request: Request) -> Answer:
        return status, headers or {}, body

    return answer


@pytest.mark.parametrize("mode", ["structured", "binary"])
async def test_a_request_is_signed_and_reads_as_a_cloud_event(mode: str) -> None:
    old, new = new_secret(), new_secret()
    async with receiving() as receiver:
        await send(receiver.url, new, old, mode=mode)

    (request,) = receiver.requests
    for secret in (old, new):
        Webhook(secret).verify(request.body, request.headers)
    event = from_http_event(HTTPMessage(request.headers, request.body))
    assert (event.get_id(), event.get_type(), event.get_data()) == (
        str(EVENT_ID),
        "order.created",
        {"n": 1},
    )
    assert request.headers["webhook-id"] == event.get_id()


async def test_a_request_says_whom_it_is_for_and_who_sends_it() -> None:
    async with receiving() as receiver:
        await send(f"http://localhost:{receiver.port}/a%20b?c=d#e", headers={"Authorization": "Bearer x"})

    (request,) = receiver.requests
    assert (request.path, request.headers["host"]) == ("/a%20b?c=d", f"localhost:{receiver.port}")
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["user-agent"].startswith("holdfast/")


async def test_a_header_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SINK_TOKEN", "s3cret")
    async with receiving() as receiver:
        await send(receiver.url, headers={"X-Token": "env:HOLDFAST_SINK_TOKEN"})

    assert receiver.requests[0].headers["x-token"] == "s3cret"


@pytest.mark.parametrize("name", ["DATABASE_URL", "HOLDFAST_WEB_SECRET", "PATH", "", "holdfast_sink_token"])
def test_no_other_variable_can_be_read(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name or "X", "s3cret")
    with pytest.raises(ConfigurationError, match="only variables that begin with HOLDFAST_SINK_") as caught:
        HttpSink(config_for("https://hook.example/", headers={"X-Token": f"env:{name}"}))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_success_takes_the_event(status: int) -> None:
    async with receiving(answering(status)) as receiver:
        await send(receiver.url)


@pytest.mark.parametrize("status", [400, 401, 404, 410, 500, 502])
async def test_any_other_status_does_not(status: int) -> None:
    async with receiving(answering(status, body=b"internal details")) as receiver:
        with pytest.raises(Undelivered, match=f"^HTTP {status}$"):
            await send(receiver.url)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    async with receiving() as inner, receiving(answering(status, {"location": inner.url})) as receiver:
        with pytest.raises(Undelivered, match="redirects are not followed"):
            await send(receiver.url)

    assert inner.requests == []


@pytest.mark.parametrize(
    "target",
    [
        "https://127.0.0.1:{port}/",
        "https://[::ffff:127.0.0.1]:{port}/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:10.0.0.1]/",
        "https://localhost:{port}/",
        "https://2130706433:{port}/",
        "http://127.0.0.1:{port}/",
    ],
)
async def test_an_internal_address_is_refused_unless_the_administrator_allows_it(target: str) -> None:
    async with receiving() as receiver:
        with pytest.raises((DestinationForbidden, ConfigurationError), match="internal address"):
            await send(
                target.format(port=receiver.port),
                allowed=("10.1.0.0/16", "other.example"),
            )

    assert receiver.requests == []


async def test_with_permission_the_same_address_is_reached() -> None:
    async with receiving() as receiver:
        for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "2130706433"):
            await send(f"http://{host}:{receiver.port}/")

    assert len(receiver.requests) == 4


async def test_a_name_is_not_looked_up_a_second_time() -> None:
    """A name server that returns a public address first and an internal one later gains nothing."""

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    asked: list[str] = []
    async with receiving() as receiver:
        sink = HttpSink(config_for(f"http://hook.example:{receiver.port}/"), resolve=resolve)
        await sink.send(outgoing())
        await sink.close()

    assert asked == ["hook.example"]
    assert receiver.requests[0].headers["host"] == f"hook.example:{receiver.port}"


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


def _tls(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def _send_to_name(receiver: Receiver, name: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    sink = HttpSink(config_for(f"https://{name}:{receiver.port}/"), resolve=resolve)
    try:
        await sink.send(outgoing())
    finally:
        await sink.close()


async def test_a_certificate_has_to_be_for_the_name_and_not_for_the_address(
    authority: trustme.CA, trusted: None
) -> None:
    async with receiving(tls=_tls(authority, "hook.example")) as receiver:
        await _send_to_name(receiver, "hook.example")
        with pytest.raises(Undelivered, match="CERTIFICATE_VERIFY_FAILED"):
            await _send_to_name(receiver, "other.example")

    assert len(receiver.requests) == 1


async def test_a_certificate_of_a_stranger_is_refused(authority: trustme.CA) -> None:
    async with receiving(tls=_tls(authority, "hook.example")) as receiver:
        with pytest.raises(Undelivered, match="CERTIFICATE_VERIFY_FAILED"):
            await _send_to_name(receiver, "hook.example")


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with receiving() as receiver:
        await send(receiver.url)


async def test_a_receiver_that_never_answers_is_given_up() -> None:
    async def silence(request: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with receiving(silence) as receiver:
        with pytest.raises(Undelivered, match="Timeout"):
            await send(receiver.url, timeout=0.1)


async def test_a_long_answer_is_not_read_to_its_end() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        except ConnectionError:
            hung_up.set()
        finally:
            writer.transport.abort()

    hung_up = asyncio.Event()
    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    await send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    async with asyncio.timeout(10):
        await hung_up.wait()
    server.close()


@pytest.mark.parametrize("rest", ["stalls", "breaks off"])
async def test_a_success_counts_whatever_becomes_of_the_body(rest: str) -> None:
    async def begin_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nthanks")
        await writer.drain()
        if rest == "stalls":
            await let_go.wait()
        writer.transport.abort()

    let_go = asyncio.Event()
    server = await asyncio.start_server(begin_only, "127.0.0.1", 0)
    await send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", timeout=5)
    let_go.set()
    server.close()


@pytest.mark.parametrize(
    ("headers", "delay"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "99999999999"}, 86400),
        (
            {"retry-after": "Thu, 31 Jan 2030 12:00:10 GMT", "date": "Thu, 31 Jan 2030 12:00:00 GMT"},
            10,
        ),
        ({"retry-after": "Wed, 21 Oct 2150 07:28:00 GMT"}, 86400),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
async def test_a_receiver_may_say_how_long_to_wait(headers: dict[str, str], delay: float | None) -> None:
    async with receiving(answering(429, headers)) as receiver:
        with pytest.raises(Undelivered) as caught:
            await send(receiver.url)
    assert caught.value.delay == delay


async def test_nobody_at_the_address_is_said_so() -> None:
    async with receiving() as receiver:
        url = receiver.url
    with pytest.raises(Undelivered, match="ConnectError"):
        await send(url)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "other"},
        {"headers": {"webhook-id": "mine"}},
        {"headers": {"Content-Type": "text/plain"}},
        {"headers": {"Host": "elsewhere"}},
        {"headers": {"X-A\r\nX-B": "x"}},
        {"headers": {"X-A": "x\r\nX-B: y"}},
        {"timeout": 0},
        {"timeout": 3600},
        {"concurrency": 0},
        {"nonsense": 1},
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="invalid sink options"):
        build_sink("http", config_for("https://hook.example/", **options))


@pytest.mark.parametrize("target", ["hook.example", "ftp://hook.example", "https://", "https://[::1"])
def test_a_target_that_is_no_url_is_refused(target: str) -> None:
    with pytest.raises(ConfigurationError, match="target"):
        build_sink("http", config_for(target))
