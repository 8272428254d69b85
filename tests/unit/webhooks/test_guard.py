"""No webhook reaches an address that is not public, however the address is written or resolved."""

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.foundation.errors import Misconfigured
from services.foundation.identifiers import new_id
from services.webhooks.deliver import Attempt, Parcel, deliver
from services.webhooks.guard import NOT_PUBLIC, Lookup, allowed_networks, guarded_session, is_public, system_lookup
from services.webhooks.sign import new_secret
from tests.fakes.receiver import Receiver, answering


async def send(url: str, allow: Sequence[str] = (), lookup: Lookup = system_lookup) -> Attempt:
    """One attempt to deliver to `url`."""
    parcel = Parcel(new_id(), new_id(), number=1, host="", url=url, body="{}", secrets=(new_secret(),))
    async with guarded_session(allowed_networks(allow), "Assizes/test", lookup) as session:
        return await deliver(session, parcel)


@pytest.mark.parametrize("public", ["1.1.1.1", "8.8.8.8", "93.184.215.14", "223.255.255.255", "2606:4700::1111"])
def test_public_addresses(public: str) -> None:
    assert is_public(ip_address(public))


@pytest.mark.parametrize(
    "local",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254"),
        *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
        *("192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
        *("239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8"),
        *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:4136:e378::1"),
        *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1", "3ffe::1"),
        *("3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1"),
        *("ff0e::1", "2606:4700::1111%eth0", "4000::1", "200::1"),
    ],
)
def test_addresses_that_are_not_public(local: str) -> None:
    assert not is_public(ip_address(local))


@given(st.sampled_from(NOT_PUBLIC).flatmap(lambda network: st.ip_addresses(network=network)))
def test_nothing_in_a_special_network_is_public(address: IPv4Address | IPv6Address) -> None:
    assert not is_public(address)


@given(st.ip_addresses())
def test_what_is_public_here_is_global_to_the_standard_library(address: IPv4Address | IPv6Address) -> None:
    assert not is_public(address) or (address.is_global and not address.is_multicast and not address.is_reserved)


@given(st.ip_addresses(v=4), st.integers(0, 2**80 - 1))
def test_no_ipv6_address_that_carries_an_ipv4_address_is_public(inner: IPv4Address, rest: int) -> None:
    low = int(inner)
    carriers = [low, 0xFFFF << 32 | low, 0xFFFF << 48 | low, 0x64FF9B << 96 | low]
    carriers += [0x2002 << 112 | low << 80 | rest, 0x20010000 << 96 | rest]
    assert not any(is_public(IPv6Address(carrier)) for carrier in carriers)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.2", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001"),
        *("127.0.0.1.", "127.0.1", "0", "0.0.0.0", "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1"),
        *("localhost", "LOCALHOST", "localhost."),
        *("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]"),
        *("[0:0:0:0:0:0:0:1]", "[::1%25lo]", "[::1%lo]", "[fe80::1%25lo]", "[2002:7f00:1::]"),
        *("10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1", "255.255.255.255", "224.0.0.1"),
        *("a..b", "%31%32%37.0.0.1", "*", "[v1.x]", "x" * 64 + ".example"),
    ],
)
def test_no_spelling_of_a_local_address_is_connected_to(host: str) -> None:
    async def attempt() -> tuple[Attempt, int]:
        async with Receiver(answering(200)) as receiver:
            return await send(f"http://{host}:{receiver.port}/"), receiver.connections

    answer, connections = asyncio.run(attempt())
    assert answer.status is None
    assert answer.error
    assert connections == 0


@pytest.mark.parametrize("url", ["http://user:secret@{}/", "ftp://{}/", "gopher://{}/", "http:///"])
def test_no_other_scheme_and_no_credentials_even_where_the_address_is_allowed(url: str) -> None:
    async def attempt() -> tuple[Attempt, int]:
        async with Receiver(answering(200)) as receiver:
            answer = await send(url.format(f"127.0.0.1:{receiver.port}"), allow=["127.0.0.0/8"])
            return answer, receiver.connections

    answer, connections = asyncio.run(attempt())
    assert (answer.error or "").startswith("refused: ")
    assert connections == 0


@pytest.mark.parametrize("private", ["10.1.2.3", "127.0.0.1", "::1", "::ffff:10.1.2.3", "169.254.169.254"])
def test_one_private_address_among_public_ones_refuses_the_name(private: str) -> None:
    answer = asyncio.run(send("http://mixed.example/", lookup=lambda _: ["93.184.215.14", private, "1.1.1.1"]))
    assert answer.error == "refused: mixed.example is not a public address, or has one that is not"


def test_what_a_private_name_resolves_to_is_not_told() -> None:
    answer = asyncio.run(send("http://database.internal/", lookup=lambda _: ["10.1.2.3"]))
    assert answer.error is not None
    assert "10.1.2.3" not in answer.error


def test_a_name_that_resolves_anew_is_connected_to_where_it_was_checked() -> None:
    answers = [["127.0.0.2"], ["127.0.0.1"]]
    asked = []

    def rebinding(host: str) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    async def attempts() -> tuple[Attempt, Attempt, int]:
        async with Receiver(answering(200), "127.0.0.2") as allowed, Receiver(answering(200), "127.0.0.1") as inner:
            first = await send(f"http://rebind.example:{allowed.port}/", ["127.0.0.2"], rebinding)
            assert len(allowed.received) == 1
            assert asked == ["rebind.example"]
            second = await send(f"http://rebind.example:{inner.port}/", ["127.0.0.2"], rebinding)
            return first, second, inner.connections

    first, second, inner_connections = asyncio.run(attempts())
    assert first.status == 200
    assert second.status is None
    assert second.error == "refused: rebind.example is not a public address, or has one that is not"
    assert inner_connections == 0


def test_names_are_resolved_at_each_attempt() -> None:
    asked = []

    def lookup(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def attempts() -> None:
        async with (
            Receiver(answering(500)) as receiver,
            guarded_session(allowed_networks(["127.0.0.1"]), "Assizes/test", lookup) as session,
        ):
            for number in (1, 2):
                url = f"http://name.example:{receiver.port}/"
                await deliver(session, Parcel(new_id(), new_id(), number, "", url, "{}", (new_secret(),)))

    asyncio.run(attempts())
    assert asked == ["name.example", "name.example"]


@pytest.mark.parametrize("allow", [["127.0.0.1"], ["127.0.0.0/8"], ["10.0.0.0/8", "127.0.0.1/32"]])
def test_the_operator_may_allow_addresses_and_networks(allow: list[str]) -> None:
    async def attempt() -> Attempt:
        async with Receiver(answering(200)) as receiver:
            return await send(receiver.url, allow)

    assert asyncio.run(attempt()).status == 200


def test_what_is_allowed_is_no_more_than_what_is_listed() -> None:
    async def attempt() -> tuple[Attempt, int]:
        async with Receiver(answering(200), "127.0.0.2") as receiver:
            return await send(receiver.url, ["127.0.0.1", "::1", "10.0.0.0/8"]), receiver.connections

    answer, connections = asyncio.run(attempt())
    assert (answer.error or "").startswith("refused: ")
    assert connections == 0


@pytest.mark.parametrize("entry", ["localhost", "127.0.0.1/8", "300.0.0.1", "", "10.0.0.0/33"])
def test_a_wrong_allow_list_does_not_load(entry: str) -> None:
    with pytest.raises(Misconfigured, match="ASSIZES_WEBHOOK_ALLOW"):
        allowed_networks(["10.0.0.0/8", entry])


def test_an_allow_list_is_read_as_networks() -> None:
    assert allowed_networks(["127.0.0.1", "fd00::/8"]) == (ip_network("127.0.0.1/32"), ip_network("fd00::/8"))
