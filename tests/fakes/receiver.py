"""A webhook receiver on a free local port that keeps what it got and answers as it is told."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Received:
    """One request, its header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


def answering(*statuses: int, body: bytes = b"", headers: str = "") -> Answer:
    """Answer the first request with the first of `statuses` and so on, the last one over and over."""

    async def answer(number: int, writer: asyncio.StreamWriter) -> None:
        status = statuses[min(number, len(statuses)) - 1]
        writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)

    return answer


class Receiver:
    """Serves one request a connection. `answer(number, writer)` writes the raw answer to the `number`th request."""

    def __init__(self, answer: Answer, host: str = "127.0.0.1") -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self._answer = answer
        self._host = host
        self._server: asyncio.Server
        self._handlers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, self._host, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self.port}/hook"

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(self._serve(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            request, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.received.append(Received(request.split(" ")[1], headers, body))
            await self._answer(len(self.received), writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sender has gone
        finally:
            self.open -= 1
            writer.close()
