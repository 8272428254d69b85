"""One attempt: what is sent, and what becomes of whatever a receiver does."""

import asyncio
import gzip
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook
from yarl import URL

from services.foundation.identifiers import new_id, shown
from services.webhooks.deliver import Attempt, Parcel, deliver
from services.webhooks.guard import allowed_networks, guarded_session, is_public
from services.webhooks.sign import new_secret
from tests.fakes.receiver import Answer, Received, Receiver, answering

LOOPBACK = allowed_networks(["127.0.0.0/8"])
BODY = '{"type":"job.completed","data":{"text":"é\\u0000"}}'


def parcel_for(url: str, *secrets: str) -> Parcel:
    """A parcel on its first attempt."""
    return Parcel(new_id(), new_id(), number=1, host="", url=url, body=BODY, secrets=secrets or (new_secret(),))


def attempt_at(answer: Answer, deadline: float = 15.0, path: str = "") -> tuple[Attempt, list[Received]]:
    """One attempt against a receiver that answers so."""

    async def attempt() -> tuple[Attempt, list[Received]]:
        async with Receiver(answer) as receiver, guarded_session(LOOPBACK, "Assizes/test") as session:
            return await deliver(session, parcel_for(receiver.url + path), deadline), receiver.received

    return asyncio.run(attempt())


def raw(data: bytes, *, then: Callable[[asyncio.StreamWriter], None] = lambda _: None) -> Answer:
    """Answer with `data` as it is, then close the connection."""

    async def answer(_: int, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        then(writer)

    return answer


def test_a_signed_post_that_the_public_library_verifies() -> None:
    old, new = new_secret(), new_secret()

    async def attempt() -> tuple[Parcel, Attempt, list[Received]]:
        async with Receiver(answering(204)) as receiver, guarded_session(LOOPBACK, "Assizes/1.2.3") as session:
            parcel = parcel_for(receiver.url + "?token=a%2Fb", new, old)
            return parcel, await deliver(session, parcel), receiver.received

    parcel, answer, [request] = asyncio.run(attempt())
    assert (answer.status, answer.body, answer.error) == (204, "", None)
    assert answer.latency_ms > 0
    assert request.path == "/hook?token=a%2Fb"
    assert request.body == BODY.encode()
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"] == "Assizes/1.2.3"
    assert request.headers["webhook-id"] == shown("msg", parcel.id)
    for secret in (old, new):
        assert Webhook(secret).verify(request.body, request.headers)["type"] == "job.completed"


def test_secrets_and_bodies_are_not_shown_with_a_parcel() -> None:
    secret = new_secret()
    parcel = parcel_for("https://example.com/secret-path", secret)
    assert secret not in repr(parcel)
    assert "secret-path" not in repr(parcel)
    assert BODY not in repr(parcel)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    async def attempt() -> tuple[Attempt, int]:
        async with (
            Receiver(answering(200)) as inner,
            Receiver(answering(status, headers=f"Location: {inner.url}\r\n")) as receiver,
            guarded_session(LOOPBACK, "Assizes/test") as session,
        ):
            return await deliver(session, parcel_for(receiver.url)), inner.connections

    answer, followed = asyncio.run(attempt())
    assert answer.status == status
    assert followed == 0


def test_an_answer_is_kept_up_to_a_kilobyte() -> None:
    answer, _ = attempt_at(answering(500, body=b"x" * 5000))
    assert (answer.status, answer.body) == (500, "x" * 1024)


def test_an_answer_without_end_is_cut() -> None:
    written = []

    async def endless(_: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            written.append(65536)

    answer, _ = attempt_at(endless)
    assert (answer.status, answer.body) == (200, "x" * 1024)
    assert sum(written) < 64 << 20  # what the system's own buffers take


def test_a_slow_drip_is_cut_by_the_deadline() -> None:
    async def drip(_: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    answer, _ = attempt_at(drip, deadline=0.3)
    assert (answer.status, answer.error) == (None, "no complete answer within 0.3 s")


def test_silence_is_cut_by_the_deadline() -> None:
    async def silent(_: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    answer, [_] = attempt_at(silent, deadline=0.3)
    assert (answer.status, answer.error) == (None, "no complete answer within 0.3 s")


def test_a_lookup_that_hangs_is_cut_by_the_deadline() -> None:
    async def attempt() -> Attempt:
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hanging(_: str) -> list[str]:
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
            return ["127.0.0.1"]

        async with guarded_session(LOOPBACK, "Assizes/test", hanging) as session:
            try:
                return await deliver(session, parcel_for("http://hanging.example/"), deadline=0.3)
            finally:
                release.set()

    assert asyncio.run(attempt()).error == "no complete answer within 0.3 s"


@pytest.mark.parametrize("status", [429, 503])
def test_what_a_busy_receiver_asks_for_is_heard(status: int) -> None:
    answer, _ = attempt_at(answering(status, headers="Retry-After: 120\r\n"))
    assert (answer.status, answer.retry_after) == (status, 120.0)


def test_a_date_to_come_back_at_is_heard() -> None:
    date = (datetime.now(UTC) + timedelta(hours=1)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    answer, _ = attempt_at(answering(503, headers=f"Retry-After: {date}\r\n"))
    assert answer.retry_after is not None
    assert 1800 < answer.retry_after <= 3600


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\xff\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 \x00\xff\xfe\r\nX\x00: \xff\r\n\r\n",
    ],
)
def test_what_is_not_an_answer_is_an_error_that_can_be_kept(data: bytes) -> None:
    answer, [_] = attempt_at(raw(data))
    assert answer.status is None
    assert answer.error
    assert "\x00" not in answer.error
    assert len(answer.error.encode()) < 8192


def test_a_reset_connection_is_an_error() -> None:
    answer, _ = attempt_at(raw(b"", then=lambda writer: writer.transport.abort()))
    assert (answer.status, bool(answer.error)) == (None, True)


def test_nobody_there_is_an_error() -> None:
    async def attempt() -> Attempt:
        async with Receiver(answering(200)) as receiver:
            url = receiver.url
        async with guarded_session(LOOPBACK, "Assizes/test") as session:
            return await deliver(session, parcel_for(url))

    answer = asyncio.run(attempt())
    assert answer.status is None
    assert (answer.error or "").startswith("ClientConnectorError: ")


def test_https_is_never_spoken_in_the_clear() -> None:
    async def attempt() -> tuple[Attempt, list[Received]]:
        async with Receiver(answering(200)) as receiver, guarded_session(LOOPBACK, "Assizes/test") as session:
            url = receiver.url.replace("http:", "https:")
            return await deliver(session, parcel_for(url), deadline=0.3), receiver.received

    answer, received = asyncio.run(attempt())
    assert (answer.status, bool(answer.error), received) == (None, True, [])


def test_bytes_that_are_no_text_are_kept_as_text() -> None:
    answer, _ = attempt_at(answering(400, body=b"a\x00b\xff\xed\xa0\x80c"))
    assert answer.body is not None
    assert answer.body.startswith("a\ufffdb\ufffd")
    answer.body.encode()


def test_a_compressed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b"x" * 10_000_000, mtime=0)
    answer, [request] = attempt_at(answering(200, body=packed, headers="Content-Encoding: gzip\r\n"))
    assert request.headers["accept-encoding"] == "identity"
    kept = packed[:1024].decode(errors="replace")  # several bytes may become one character
    assert (answer.status, len(answer.body or "")) == (200, len(kept))
    assert "xxx" not in (answer.body or "")


def test_a_receivers_cookies_are_not_brought_back() -> None:
    async def attempts() -> list[Received]:
        answer = answering(500, headers="Set-Cookie: tenant=other\r\n")
        async with (
            Receiver(answer) as receiver,
            guarded_session(LOOPBACK, "Assizes/test", lambda _: ["127.0.0.1"]) as session,
        ):
            for _ in range(2):
                await deliver(session, parcel_for(f"http://cookies.example:{receiver.port}/"))
            return receiver.received

    received = asyncio.run(attempts())
    assert ["cookie" in request.headers for request in received] == [False, False]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    answer, received = attempt_at(answering(200))
    assert (answer.status, len(received)) == (200, 1)


HOSTS = st.one_of(
    st.text(min_size=1, max_size=30),
    st.from_regex(r"[0-9a-fx.:%\[\]@]{1,30}", fullmatch=True),
    st.ip_addresses().map(lambda address: f"[{address}]" if address.version == 6 else str(address)),
)


def names_a_public_address(url: str) -> bool:
    """True for a URL that would rightly be sent to."""
    try:
        return is_public(ip_address(URL(url).host or ""))
    except (ValueError, IndexError):
        return False


@settings(max_examples=50, deadline=None)
@given(st.lists(HOSTS.map(lambda host: f"http://{host}/"), min_size=20, max_size=20))
def test_any_url_ends_in_an_attempt_and_reaches_no_one(urls: list[str]) -> None:
    async def attempts() -> list[Attempt]:
        async with guarded_session((), "Assizes/test", lambda _: ["127.0.0.1"]) as session:
            return [await deliver(session, parcel_for(url)) for url in urls if not names_a_public_address(url)]

    assert all(attempt.status is None and attempt.error for attempt in asyncio.run(attempts()))
