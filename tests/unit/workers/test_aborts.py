"""Aborted calls are seen to be gone: a server that goes on with them is told again, and what stays is reported."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from services.judging.runtime import Call, Sampling
from workers.runtime import client
from workers.runtime.client import SGLangRuntime, open_session

SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=-1, max_tokens=1)


class Stubborn:
    """A server whose calls end only when they were aborted `times` times, and never because their client left."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.called = asyncio.Event()
        self.aborts: list[str] = []

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Its url, for the length of the block."""
        application = web.Application()
        application.add_routes(
            [
                web.post("/generate", self._generate),
                web.post("/abort_request", self._abort),
                web.get("/v1/loads", self._loads),
            ]
        )
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        await runner.cleanup()

    async def _generate(self, _request: web.Request) -> web.Response:
        self.called.set()
        await asyncio.Event().wait()
        return web.Response()

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborts.append((await request.json())["rid"])
        return web.Response()

    async def _loads(self, _request: web.Request) -> web.Response:
        running = int(len(self.aborts) < self.times)
        return web.json_response({"loads": [{"num_running_reqs": running, "num_waiting_reqs": 0, "token_usage": 0.0}]})


def hung_up(times: int) -> tuple[list[str], list[str]]:
    """The rids that such a server was told to abort after one call was cancelled, and the events that were logged."""

    async def play() -> list[str]:
        server = Stubborn(times)
        async with server.served() as url, open_session() as session:
            runtime = SGLangRuntime(session, url)
            call = asyncio.create_task(runtime.complete(Call("r", [1, 2], SAMPLING)))
            await server.called.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert runtime._verifier is not None
            await runtime._verifier
            await runtime.aclose()
        return server.aborts

    with capture_logs() as logged:
        aborts = asyncio.run(asyncio.wait_for(play(), 60))
    return aborts, [line["event"] for line in logged]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "VERIFY_S", (0.05,) * 4)


def test_one_abort_is_enough_for_a_server_that_heeds_it() -> None:
    assert hung_up(1) == (["r"], [])


def test_a_call_that_runs_on_is_aborted_again() -> None:
    assert hung_up(3) == (["r"] * 3, [])


def test_a_call_that_cannot_be_aborted_is_reported_once() -> None:
    assert hung_up(100) == (["r"] * 5, ["aborted_calls_run_on"])
