"""Which addresses may be reached without permission."""

import ipaddress
import socket
from ipaddress import ip_address

import pytest

from holdfast.errors import ConfigurationError
from holdfast.outbox.destinations import (
    DestinationForbidden,
    DestinationResolver,
    is_public,
)
from holdfast.outbox.sink import Undelivered

INTERNAL = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255"),  # noqa: S104
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.1", "192.0.0.9", "198.18.0.1"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"),
    *("255.255.255.255", "192.88.99.1"),
    *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "100::1"),
    *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "::127.0.0.1"),
    *("64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::"),
    *("2001::1", "2001:0:7f00:1::", "3fff::1", "5f00::1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.63.255.255", "100.128.0.1", "192.167.1.1"),
    *("2606:4700:4700::1111", "2a00:1450:4001:80b::200e"),
    *("::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
]


@pytest.mark.parametrize("address", INTERNAL)
def test_an_internal_address_is_known(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_known(address: str) -> None:
    assert is_public(ip_address(address))


def test_no_block_of_the_private_ones_is_let_through_at_its_ends() -> None:
    for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "100.64.0.0/10"):
        network = ipaddress.ip_network(block)
        assert not is_public(network[0])
        assert not is_public(network[-1])


def resolver(*answers: str, allow: tuple[str, ...] = ()) -> DestinationResolver:
    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return list(answers)

    asked: list[str] = []
    made = DestinationResolver(allow, resolve=resolve)
    made.asked = asked  # type: ignore[attr-defined]
    return made


async def https(resolver: DestinationResolver, host: str = "hook.example", port: int = 443) -> str:
    return await resolver.address_of("https", host, port)


async def test_a_name_is_connected_to_at_the_address_that_was_looked_at() -> None:
    assert await https(resolver("93.184.216.34", "8.8.8.8")) == "93.184.216.34"


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fe80::1%eth0"])
async def test_a_name_that_resolves_to_an_internal_address_is_refused(address: str) -> None:
    with pytest.raises(DestinationForbidden, match="internal address"):
        await https(resolver(address))


async def test_one_internal_address_among_public_ones_is_enough() -> None:
    with pytest.raises(DestinationForbidden):
        await https(resolver("93.184.216.34", "10.0.0.1"))


async def test_an_address_is_refused_however_it_is_written() -> None:
    for host in ("2130706433", "0x7f.1", "127.1", "017700000001", "localhost"):
        with pytest.raises(Undelivered):
            await https(DestinationResolver(()), host)


@pytest.mark.parametrize("allow", ["hook.example", "Hook.Example.", "127.0.0.1", "127.0.0.0/8"])
async def test_what_the_administrator_allows_is_let_through_over_any_scheme_and_port(allow: str) -> None:
    assert await resolver("127.0.0.1", allow=(allow,)).address_of("http", "hook.example", 25) == "127.0.0.1"


async def test_only_what_is_listed_is_allowed() -> None:
    inside = resolver("10.0.0.1", allow=("10.0.0.0/24", "other.example"))
    assert await inside.address_of("nats", "hook.example", 4222) == "10.0.0.1"
    for addresses in (["10.0.1.1"], ["10.0.0.1", "10.0.1.1"], ["127.0.0.1"]):
        with pytest.raises(DestinationForbidden, match="internal address"):
            await https(resolver(*addresses, allow=("10.0.0.0/24", "other.example")))
    mixed = resolver("10.0.0.1", "8.8.8.8", allow=("10.0.0.0/24",))
    with pytest.raises(DestinationForbidden, match="use a connection with TLS"):
        await mixed.address_of("http", "hook.example", 8080)


async def test_an_address_mapped_into_ipv6_is_the_one_that_is_allowed() -> None:
    assert await https(resolver("::ffff:10.0.0.1", allow=("10.0.0.0/8",))) == "::ffff:a00:1"
    with pytest.raises(DestinationForbidden):
        await https(resolver("::ffff:10.0.0.1", allow=("192.168.0.0/16",)))


async def test_a_name_is_looked_up_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolver("93.184.216.34")
    await https(asked)
    await https(asked)
    assert asked.asked == ["hook.example"]  # type: ignore[attr-defined]

    monkeypatch.setattr("holdfast.outbox.destinations.CACHE_SECONDS", -1)
    asked._cached = (0.0, ("", "", 0), "")
    await https(asked)
    await https(asked)
    assert len(asked.asked) == 3  # type: ignore[attr-defined]


async def test_a_name_that_does_not_exist_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(Undelivered, match="cannot be resolved"):
        await https(DestinationResolver(()))


@pytest.mark.parametrize(
    ("scheme", "port"),
    [("http", 443), ("nats", 4222), ("amqp", 5672), ("https", 25), ("https", 80), ("tls", 22)],
)
async def test_plain_text_and_ports_of_other_services_are_refused(scheme: str, port: int) -> None:
    with pytest.raises(DestinationForbidden, match="not allowed"):
        await resolver("93.184.216.34").address_of(scheme, "hook.example", port)


async def test_tls_on_the_usual_port_and_high_ones_is_fine() -> None:
    for scheme, port in (("https", 443), ("https", 8443), ("tls", 4222), ("amqps", 5671)):
        assert await resolver("93.184.216.34").address_of(scheme, "hook.example", port)


@pytest.mark.parametrize(
    ("scheme", "host"),
    [("https", "127.0.0.1"), ("https", "::ffff:10.0.0.1"), ("https", "localhost"), ("nats", "api.localhost")],
)
def test_what_is_plainly_internal_is_refused_before_anything_is_sent(scheme: str, host: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_OUTBOX_ALLOW"):
        resolver().check_target(scheme, host, 4222)
    resolver(allow=("127.0.0.0/8", "10.0.0.0/8", "localhost", "api.localhost")).check_target(
        scheme, host, 4222
    )
