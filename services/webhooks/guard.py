"""Where webhooks may go: to public addresses, and to those that the operator allows.

Guarantee: no socket is made for any other address. The check stands between the choice of an address and the connection
to it, so neither a name that resolves anew, nor a literal, nor an odd spelling of one gets past it.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from services.foundation.errors import AssizesError, Misconfigured

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Lookup = Callable[[str], Sequence[str]]

LOOKUPS_AT_ONCE = 64  # a lookup that hangs holds a thread, never one of those that speak to the database

# The special-purpose registries of IANA (RFC 6890 and its additions), and the ranges that hide an IPv4 address.
GLOBAL_UNICAST = IPv6Network("2000::/3")  # RFC 4291: mapped, compatible, NAT64, local and multicast lie outside of it
NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and the metadata services of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # multicast tunnels
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # IETF protocol assignments: Teredo, ORCHID, benchmarking
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # the 6bone, returned
        "3fff::/20",  # documentation
    )
)


class TargetRefused(AssizesError):
    """This webhook must not be sent there. Nothing was. The message keeps what the name resolved to to itself."""

    code = "target_refused"


def is_public(address: Address) -> bool:
    """True for an address that stands for one host of the public Internet. A zone id makes an address local."""
    if isinstance(address, IPv6Address) and (address.scope_id is not None or address not in GLOBAL_UNICAST):
        return False
    return not any(address in network for network in NOT_PUBLIC)


def allowed_networks(entries: Iterable[str]) -> tuple[Network, ...]:
    """The networks that `ASSIZES_WEBHOOK_ALLOW` lists. Raises Misconfigured."""
    try:
        return tuple(ip_network(entry) for entry in entries)
    except ValueError as error:
        raise Misconfigured(f"ASSIZES_WEBHOOK_ALLOW: {error}") from error


def check(host: str, addresses: Iterable[str], allow: Sequence[Network]) -> None:
    """Raise TargetRefused unless every one of `addresses` is public or allowed."""
    for text in addresses:
        try:
            address = ip_address(text)
        except ValueError as error:
            raise TargetRefused(f"{host} is not an address") from error
        if not is_public(address) and not any(address in network for network in allow):
            raise TargetRefused(f"{host} is not a public address, or has one that is not")


def system_lookup(host: str) -> list[str]:
    """Every address of a name, as the system resolves it. Blocks. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host} is not a host name") from error
    return [str(entry[4][0]) for entry in found]


class CheckedResolver(AbstractResolver):
    """Resolves names into checked addresses. aiohttp connects to what this returns, without asking again."""

    def __init__(self, allow: Sequence[Network], lookup: Lookup) -> None:
        self._allow = allow
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="webhook-lookup")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises TargetRefused when any is not public, OSError when there is none."""
        addresses = await asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host)
        if not addresses:
            raise OSError(f"{host} has no address")
        check(host, addresses, self._allow)
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in addresses
        ]

    async def close(self) -> None:
        """Give up the lookups that still hang."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@contextlib.asynccontextmanager
async def guarded_session(
    allow: Sequence[Network], agent: str, lookup: Lookup = system_lookup
) -> AsyncIterator[ClientSession]:
    """A session that reaches public and allowed addresses only. It keeps no connection, no cookie and no DNS answer.

    `agent` is its User-Agent. It sets no time-outs: whoever sends sets one deadline over all.
    """

    def checked_socket(info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, destination = info
        check(destination[0], [destination[0]], allow)
        return socket.socket(family, kind, protocol)

    resolver = CheckedResolver(allow, lookup)
    connector = TCPConnector(
        resolver=resolver, socket_factory=checked_socket, use_dns_cache=False, force_close=True, limit=0
    )
    try:
        async with ClientSession(
            connector=connector,
            cookie_jar=DummyCookieJar(),
            headers={"User-Agent": agent, "Accept-Encoding": "identity"},
            timeout=ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
        ) as session:
            yield session
    finally:
        await resolver.close()
