"""The scripted runtime's HTTP: SGLang's routes, and `/scripted/...` for tests.

Guarantee: a request costs little more than its JSON (no router, no middleware, no access log); a client that closes its
connection cancels its call. Serves on 127.0.0.1 alone.
"""

import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict

import orjson
from aiohttp import web
from aiohttp.web_request import BaseRequest

from embedded.scripted import shapes
from embedded.scripted.classify import Classifier
from embedded.scripted.engine import DuplicateRid, Engine, Flight, QueueFull
from embedded.scripted.generate import Reader
from embedded.scripted.request import Fatal, Refusal, Request
from embedded.scripted.script import Fault, Order, Unscriptable

CALLS_KEPT = 4096
EVENT_STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
Handler = Callable[[BaseRequest], Awaitable[web.StreamResponse]]


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _event(body: object) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


class ScriptedServer:
    """One server. `start`, then `stop`; both once."""

    def __init__(self, identity: shapes.Identity, engine: Engine, reader: Reader) -> None:
        self.identity = identity
        self.engine = engine
        self.reader = reader
        self.script = reader.script
        self.started = time.time()
        self.calls: deque[tuple[Flight, Request]] = deque(maxlen=CALLS_KEPT)
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None
        self._reopening: asyncio.Task[None] | None = None
        info = self._reported(lambda: shapes.server_info(identity))
        model = self._reported(lambda: shapes.model_info(identity))
        self._routes: dict[str, dict[str, Handler]] = {
            "/generate": {"POST": self._called(reader)},
            "/classify": {"POST": self._called(reader.classifier)},
            "/abort_request": {"POST": self._abort},
            "/flush_cache": {"POST": self._flush, "GET": self._flush},
            "/ready": {"GET": self._empty},
            "/ping": {"GET": self._empty},
            "/health": {"GET": self._health},
            "/health_generate": {"GET": self._health},
            "/model_info": {"GET": model},
            "/get_model_info": {"GET": model},
            "/server_info": {"GET": info},
            "/get_server_info": {"GET": info},
            "/v1/models": {"GET": self._reported(lambda: shapes.models(identity, self.started))},
            "/v1/loads": {"GET": self._reported(lambda: shapes.loads(identity, engine))},
            "/metrics": {"GET": self._metrics},
            "/scripted/script": {"POST": self._add_rules, "DELETE": self._clear_rules},
            "/scripted/fault": {"POST": self._set_fault, "DELETE": self._clear_fault},
            "/scripted/calls": {"GET": self._list_calls, "DELETE": self._clear_calls},
            "/scripted/counters": {"GET": self._reported(lambda: asdict(engine.counters))},
        }

    async def start(self) -> None:
        """Listen."""
        server = web.Server(self._handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._open()

    async def stop(self) -> None:
        """Stop listening and cancel what runs."""
        if self._reopening is not None:
            self._reopening.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _open(self) -> None:
        assert self._runner is not None
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.identity.port)
        await self._site.start()

    async def _handle(self, request: BaseRequest) -> web.StreamResponse:
        methods = self._routes.get(request.path)
        if methods is None:
            return _json(shapes.missing(request.path), 404)
        handler = methods.get(request.method)
        if handler is None:
            response = _json({"detail": "Method Not Allowed"}, 405)
            response.headers["Allow"] = ", ".join(methods)
            return response
        return await handler(request)

    def _called(self, reader: Reader | Classifier) -> Handler:
        async def answer(request: BaseRequest) -> web.StreamResponse:
            return await self._call(request, reader)

        return answer

    async def _call(self, request: BaseRequest, reader: Reader | Classifier) -> web.StreamResponse:
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as fault:
            message = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': {fault}}}"
            return _json(shapes.flat_error(message, "Bad Request", 400), 400)
        try:
            asked = reader.check(body)
            flight, rule = reader.flight(asked)
            self.calls.append((flight, asked))
            order = rule if rule is not None and rule.fault is not None else self.script.struck()
            if order is not None and order.fault is Fault.SLOW_PREFILL:
                flight.prefill_s = order.seconds
            elif order is not None and order.fault is not None:
                return await self._break(request, order.fault, order.seconds, flight, asked)
            self.engine.admit(flight)
        except Refusal as refusal:
            return self._refused(refusal, body)
        except Fatal as fault:
            print(f"scripted runtime: {fault}: dying as SGLang does", file=sys.stderr, flush=True)
            os._exit(1)
        except DuplicateRid as duplicate:
            return self._refused(Refusal(400, shapes.error(f"Duplicate request ID detected: {duplicate}")), body)
        except QueueFull:
            return _json(shapes.flat_error("The request queue is full.", "503", 503), 503)
        if rule is not None and rule.finish_reason == "abort":
            flight.abort()
        if asked.stream:
            return await self._stream(request, flight, asked)
        await self.engine.run(flight)
        return _json(self._completion(flight, asked))

    def _refused(self, refusal: Refusal, body: object) -> web.StreamResponse:
        """A refusal; one found after the parsing comes inside the stream that was asked for."""
        if isinstance(refusal.body, str):
            return web.Response(text=refusal.body, status=refusal.status)
        inner = refusal.body.get("error")
        if isinstance(inner, dict) and isinstance(body, Mapping) and body.get("stream"):
            detail = {**inner, "type": "invalid_request_error", "code": refusal.status, "retryable": False}
            return web.Response(body=_event({"error": detail}) + b"data: [DONE]\n\n", headers=EVENT_STREAM)
        return _json(refusal.body, refusal.status)

    def _completion(self, flight: Flight, asked: Request, ended: bool = True) -> shapes.type_json:
        if flight.answer.numbers:
            return shapes.classification(flight)
        answer, ids = flight.answer, flight.answer.ids[: flight.written]
        whole = len(ids) == len(answer.ids)
        text = answer.text if whole else self.reader.vocabulary.decode(ids)
        return shapes.completion(flight, text, ids, self.reader.logprobs(asked, flight, ids), ended)

    async def _stream(self, request: BaseRequest, flight: Flight, asked: Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=EVENT_STREAM)
        async with aclosing(self.engine.steps(flight)) as steps:  # gives the slot back if the client leaves
            await response.prepare(request)
            async for _ in steps:
                if flight.written < len(flight.answer.ids):
                    await response.write(_event(self._completion(flight, asked, ended=False)))
        await response.write(_event(self._completion(flight, asked)) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _break(
        self, request: BaseRequest, fault: Fault, seconds: float, flight: Flight, asked: Request
    ) -> web.StreamResponse:
        """Answer as a broken server would."""
        if fault in (Fault.HANG, Fault.HANG_HEALTHY):
            self.engine.admit(flight)
            flight.deaf, flight.prefill_s = True, float("inf")
            await self.engine.run(flight)
            return _json(self._completion(flight, asked))
        if fault is Fault.DIE:
            os._exit(1)
        if fault is Fault.GARBAGE:
            return web.Response(body=b"<html>\xff not json", content_type="text/html")
        if fault is Fault.STREAM_ERROR:
            broken = {"error": shapes.flat_error("The request queue is full.", "SERVICE_UNAVAILABLE", 503)}
            body = _event(broken) + b"data: [DONE]\n\n"
            return web.Response(body=body, headers=EVENT_STREAM)
        if fault is Fault.UNAVAILABLE:
            return _json({"detail": "Service Unavailable"}, 503)
        if fault is Fault.HALF_BODY:
            whole = orjson.dumps(self._completion(flight, asked))
            half = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(whole))})
            await half.prepare(request)
            await half.write(whole[: len(whole) // 2])
            if request.transport is not None:
                request.transport.close()
            return half
        self._reopening = asyncio.create_task(self._refuse(seconds))
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _refuse(self, seconds: float) -> None:
        """Close the listening socket, and open it again later."""
        assert self._site is not None
        await self._site.stop()
        await asyncio.sleep(seconds)
        await self._open()

    async def _abort(self, request: BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw) if raw else {}
        if body.get("abort_all"):
            self.engine.abort_all()
        else:
            self.engine.abort(str(body.get("rid") or ""))
        return web.Response()

    async def _flush(self, _request: BaseRequest) -> web.StreamResponse:
        if not self.engine.running and not self.engine.waiting:
            self.engine.cache.clear()
        return web.Response(text=FLUSHED)

    async def _empty(self, _request: BaseRequest) -> web.StreamResponse:
        return web.Response()

    async def _health(self, _request: BaseRequest) -> web.StreamResponse:
        if self.script.fault is not None and self.script.fault.fault is Fault.HANG:
            await asyncio.Event().wait()
        return web.Response()

    async def _metrics(self, _request: BaseRequest) -> web.StreamResponse:
        return web.Response(text=shapes.metrics(self.identity, self.engine), content_type="text/plain", charset="utf-8")

    def _reported(self, body: Callable[[], object]) -> Handler:
        async def answer(_request: BaseRequest) -> web.StreamResponse:
            return _json(body())

        return answer

    async def _add_rules(self, request: BaseRequest) -> web.StreamResponse:
        try:
            body = orjson.loads(await request.read())
            rules = [Order.read(given) for given in (body["rules"] if isinstance(body, Mapping) else body)]
        except (orjson.JSONDecodeError, KeyError, Unscriptable) as fault:
            return _json({"error": str(fault)}, 400)
        self.script.rules += rules
        return _json({"rules": len(self.script.rules)})

    async def _clear_rules(self, _request: BaseRequest) -> web.StreamResponse:
        self.script.rules.clear()
        return _json({"rules": 0})

    async def _set_fault(self, request: BaseRequest) -> web.StreamResponse:
        try:
            order = Order.read(orjson.loads(await request.read()))
        except (orjson.JSONDecodeError, Unscriptable) as fault:
            return _json({"error": str(fault)}, 400)
        if order.fault is None:
            return _json({"error": "which fault?"}, 400)
        self.script.fault = order
        return _json({"fault": order.fault})

    async def _clear_fault(self, _request: BaseRequest) -> web.StreamResponse:
        self.script.fault = None
        return _json({"fault": None})

    async def _list_calls(self, _request: BaseRequest) -> web.StreamResponse:
        return _json([self._described(flight, asked) for flight, asked in self.calls])

    async def _clear_calls(self, _request: BaseRequest) -> web.StreamResponse:
        self.calls.clear()
        self.engine.counters.peak_running = self.engine.counters.peak_waiting = 0
        return _json([])

    def _described(self, flight: Flight, asked: Request) -> shapes.type_json:
        ended = flight.finished is not None
        return {
            "rid": flight.rid,
            "prompt": self.reader.prompts.text(asked.prompt),
            "sampling_params": asked.sampling,
            "token_ids_logprob": asked.asked,
            "prompt_tokens": flight.prompt_tokens,
            "cached_tokens": flight.cached_tokens,
            "completion_tokens": flight.written,
            "completion": self.reader.vocabulary.decode(flight.answer.ids[: flight.written]),
            "finish_reason": shapes.finish_reason(flight)["type"] if ended else None,
            "received": flight.received,
            "started": flight.started,
            "finished": flight.finished,
        }
