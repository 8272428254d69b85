"""SGLang's HTTP behind the Runtime port (checked against SGLang 0.5.23).

Guarantee: every call ends in a `Completion`, a `CallRefused` or a `RuntimeUnavailable`, never in a library's exception
and never later than its deadline. A call that its caller gives up, by cancelling or by the deadline, is aborted on the
server by its rid and its connection is closed: closing alone does not always stop a server.
"""

import asyncio
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import structlog

from services.judging.runtime import (
    Call,
    CallRefused,
    Completion,
    Label,
    RuntimeFault,
    RuntimeUnavailable,
)
from services.vocabulary import FinishReason

log = structlog.get_logger(__name__)

IDLE_S = 3.0  # SGLang closes a connection that was idle for 5 s: a call must not be sent on one that is closing
NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10)  # the deadline is ours
LOOK_S = 5.0
VERIFY_S = (1.0, 2.0, 4.0, 8.0)  # between looks whether aborted calls are gone; SGLang takes up to 3 s
# What a server counts of its work: the first at each batch, the others when a call has ended.
TOKEN_COUNTERS = re.compile(r"^sglang:(?:realtime|prompt|generation)_tokens_total(?:{.*})? (\S+)$", re.MULTILINE)
JSON = {"Content-Type": "application/json"}
LABEL_BIAS = 100.0  # added to the labels' logits: e**100 to one against every other token
SECRET = re.compile(r"(^|_)key(_|$)|password|secret", re.IGNORECASE)
REFUSALS = frozenset({400, 413, 422})
MESSAGE_LENGTH = 500  # a server's message may repeat a whole request


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What a server says of itself. No argument in `server_args` is a secret.

    `context_length`: tokens that fit for sure, prompt and answer together. SGLang refuses a prompt that is shorter than
    the model's context length by less than seven tokens, and one that its cache cannot hold. `start` names this start
    of the server: the seed that SGLang draws for itself, so one whose flags fix the seed looks the same at each start.
    """

    version: str
    served_model: str
    max_running_requests: int
    context_length: int
    start: str
    server_args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RuntimeLoads:
    """A server's live gauges, summed over its data-parallel ranks. `token_usage` is the fullest rank's, 0 to 1."""

    running: int
    waiting: int
    token_usage: float


def open_session() -> aiohttp.ClientSession:
    """A session for one runtime, with as many connections as calls. Open it on the loop that will use it."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S), trust_env=False)


class SGLangRuntime:
    """One SGLang server. `aclose` before closing the session, so that the last aborts go out.

    `url` may be changed when the server is started anew elsewhere: calls under way end at the old one.
    `deadline_s` bounds one call, waiting in the server's queue included. While the server's queue is full a call is
    tried again, at random intervals that grow to `longest_pause_s`: a full queue is no fault.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        deadline_s: float = 1800.0,
        longest_pause_s: float = 2.0,
    ) -> None:
        self._session = session
        self.url = url.rstrip("/")
        self._deadline_s = deadline_s
        self._longest_pause_s = longest_pause_s
        self._inside = 0  # calls that the server may have
        self._aborts: set[asyncio.Task[None]] = set()
        self._abandoned: set[str] = set()  # rids of aborted calls that may still run
        self._verifier: asyncio.Task[None] | None = None

    async def complete(self, call: Call) -> Completion:
        """See the port."""
        path, body = "/classify" if call.classifies else "/generate", request_body(call)
        self._inside += 1
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._post_patiently(path, body)
        except TimeoutError as error:
            self._abort_behind(call.rid)
            message = f"no answer within {self._deadline_s:g} s"
            raise RuntimeUnavailable(RuntimeFault.TIMED_OUT, message) from error
        except asyncio.CancelledError:
            self._abort_behind(call.rid)
            raise
        finally:
            self._inside -= 1
        return read_numbers(answer) if call.classifies else read_completion(answer, call.labels)

    async def abort(self, rid: str) -> None:
        """Abort one call; the server does not say whether it knew it. Raises RuntimeUnavailable."""
        await self._request("POST", "/abort_request", orjson.dumps({"rid": rid}))

    async def info(self) -> RuntimeInfo:
        """Ask the server what it is. Raises RuntimeUnavailable."""
        args = _object(await self._look("/server_info"))
        models = _object(await self._look("/v1/models"))
        return read_info(args, models)

    async def loads(self) -> RuntimeLoads:
        """Ask the server how busy it is. Raises RuntimeUnavailable."""
        answer = _object(await self._look("/v1/loads"))
        try:
            ranks = answer["loads"]
            return RuntimeLoads(
                running=sum(int(rank["num_running_reqs"]) for rank in ranks),
                waiting=sum(int(rank["num_waiting_reqs"]) for rank in ranks),
                token_usage=max((float(rank["token_usage"]) for rank in ranks), default=0.0),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RuntimeUnavailable(RuntimeFault.GARBLED, f"/v1/loads: {error!r}") from error

    async def tokens(self) -> float:
        """All tokens that the server has counted since its start: more than before is progress.

        Raises RuntimeUnavailable, also when it keeps no metrics (`--enable-metrics`).
        """
        text = (await self._look("/metrics")).decode("utf-8", "replace")
        counted = TOKEN_COUNTERS.findall(text)
        if not counted:
            raise RuntimeUnavailable(RuntimeFault.FAILED, "/metrics counts no tokens")
        try:
            return math.fsum(map(float, counted))
        except ValueError as error:
            raise RuntimeUnavailable(RuntimeFault.GARBLED, f"/metrics: {error}") from error

    async def aclose(self) -> None:
        """Wait until the aborts under way have gone out."""
        if self._verifier is not None:
            self._verifier.cancel()
        await asyncio.gather(*self._aborts)

    async def _post_patiently(self, path: str, body: bytes) -> dict[str, Any]:
        pause = 0.05
        while True:
            try:
                return _object(await self._request("POST", path, body))
            except RuntimeUnavailable as error:
                if error.code is not RuntimeFault.OVERLOADED:
                    raise
            await asyncio.sleep(random.uniform(0, pause))  # noqa: S311 - spreads callers, guards nothing
            pause = min(pause * 2, self._longest_pause_s)

    async def _look(self, path: str) -> bytes:
        """Ask for what a server has at hand. Raises RuntimeUnavailable, also when it takes its time."""
        try:
            async with asyncio.timeout(LOOK_S):
                return await self._request("GET", path)
        except TimeoutError as error:
            raise RuntimeUnavailable(RuntimeFault.TIMED_OUT, f"{path}: no answer within {LOOK_S:g} s") from error

    async def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            async with self._session.request(
                method, self.url + path, data=body, headers=JSON, timeout=NO_LIMIT, allow_redirects=False
            ) as response:
                raw = await response.read()
                status, event_stream = response.status, response.content_type == "text/event-stream"
        except TimeoutError as error:  # aiohttp's own, while connecting
            raise RuntimeUnavailable(RuntimeFault.UNREACHABLE, f"{path}: no connection in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise RuntimeUnavailable(RuntimeFault.UNREACHABLE, f"{path}: {error or type(error).__name__}") from error
        if status != 200 or event_stream:
            raise refusal(status, raw)
        return raw

    def _abort_behind(self, rid: str) -> None:
        task = asyncio.get_running_loop().create_task(self._abort_quietly(rid))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)
        self._abandoned.add(rid)
        if self._verifier is None or self._verifier.done():
            self._verifier = asyncio.get_running_loop().create_task(self._verify_aborts())

    async def _verify_aborts(self) -> None:
        """See the server's calls fall to those that are wanted, and abort the others again until they do.

        Of a server that others use too no more can be told than that it has more calls than ours.
        """
        for pause in VERIFY_S:
            await asyncio.sleep(pause)
            try:
                loads = await self.loads()
            except (RuntimeUnavailable, CallRefused):
                break  # as for the aborts themselves
            if loads.running + loads.waiting <= self._inside:
                break
            await asyncio.gather(*(self._abort_quietly(rid) for rid in self._abandoned))
        else:
            log.warning("aborted_calls_run_on", server_has=loads.running + loads.waiting, wanted=self._inside)
        self._abandoned.clear()

    async def _abort_quietly(self, rid: str) -> None:
        try:
            async with asyncio.timeout(5):
                await self.abort(rid)
        except (RuntimeUnavailable, CallRefused, TimeoutError):
            return  # a server that cannot be reached has no call left to abort, or is about to be restarted


def request_body(call: Call) -> bytes:
    """The JSON of one `/generate`, or of one `/classify`, which takes the prompt alone.

    With labels: one greedy token, bound to the labels by a bias on their logits, so that the log-probabilities are a
    softmax over the labels alone. `token_ids_logprob` makes all of them come back. A regex over the labels' texts would
    not do: it also allows a token that is only the beginning of a label (a blank before ` A`), and that may be drawn.
    """
    sampling = call.sampling
    body: dict[str, object] = {"rid": call.rid, "input_ids": call.input_ids}
    if call.classifies:
        return orjson.dumps(body, default=list)
    if call.labels:
        bias = {str(label.token_id): LABEL_BIAS for label in call.labels}
        body["sampling_params"] = {"max_new_tokens": 1, "temperature": 0.0, "logit_bias": bias}
        body["return_logprob"] = True
        body["token_ids_logprob"] = [label.token_id for label in call.labels]
    else:
        body["sampling_params"] = {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
        }
    return orjson.dumps(body, default=list)


def read_completion(answer: Mapping[str, Any], labels: Sequence[Label] = ()) -> Completion:
    """A `/generate` answer as the port gives it. Raises RuntimeUnavailable when it has not the shape it should."""
    try:
        meta = answer["meta_info"]
        reason = FinishReason(meta["finish_reason"]["type"])
        text = _text(answer["text"])
        logprobs: tuple[tuple[str, float], ...] = ()
        if labels and reason is not FinishReason.ABORT:
            logprobs = _label_logprobs(meta["output_token_ids_logprobs"][0], labels)
        return Completion(
            text=text,
            finish_reason=reason,
            prompt_tokens=meta.get("prompt_tokens"),
            cached_tokens=meta.get("cached_tokens"),
            completion_tokens=meta.get("completion_tokens"),
            label_logprobs=logprobs,
            queue_s=meta.get("queue_time"),
            latency_s=meta.get("e2e_latency"),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RuntimeUnavailable(RuntimeFault.GARBLED, f"/generate: {error!r}") from error


def read_numbers(answer: Mapping[str, Any]) -> Completion:
    """A `/classify` answer as the port gives it. Raises RuntimeUnavailable when it does not tell how the call ended.

    What stands for its numbers is passed on, whatever it is, null where nothing is or a number is not finite: what is
    no score is that one text's misfortune, not the runtime's. How many of its tokens were cached it does not tell.
    """
    try:
        meta = answer["meta_info"]
        aborted = FinishReason(meta["finish_reason"]["type"]) is FinishReason.ABORT
        return Completion(
            text="" if aborted else orjson.dumps(answer.get("embedding")).decode(),
            finish_reason=FinishReason.ABORT if aborted else FinishReason.STOP,
            prompt_tokens=meta.get("prompt_tokens"),
            cached_tokens=None,
            completion_tokens=0,
            queue_s=meta.get("queue_time"),
            latency_s=meta.get("e2e_latency"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RuntimeUnavailable(RuntimeFault.GARBLED, f"/classify: {error!r}") from error


def read_info(args: Mapping[str, Any], models: Mapping[str, Any]) -> RuntimeInfo:
    """`/server_info` and `/v1/models` in one. Raises RuntimeUnavailable when they have not the shape they should."""
    try:
        states = args.get("internal_states") or [{}]
        running = sum(int(state.get("effective_max_running_requests_per_dp") or 0) for state in states)
        longest = int(models["data"][0]["max_model_len"])
        return RuntimeInfo(
            version=str(args["version"]),
            served_model=str(models["data"][0]["id"]),
            max_running_requests=running or int(args["max_running_requests"]),
            context_length=min(longest, int(args.get("max_req_input_len") or longest)),
            start=str(args.get("random_seed")),
            server_args={name: value for name, value in args.items() if not SECRET.search(name)},
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RuntimeUnavailable(RuntimeFault.GARBLED, f"/server_info: {error!r}") from error


def refusal(status: int, raw: bytes) -> CallRefused | RuntimeUnavailable:
    """The error behind an answer that is not a good one: a status other than 200, or an unasked-for event stream.

    SGLang has five shapes for errors: `{"object": "error", "message"}`, `{"error": {"message"}}`, `{"error": text}`,
    `{"detail"}`, and the second inside a 200 event stream.
    """
    if raw.startswith(b"data: "):
        raw = raw.removeprefix(b"data: ").split(b"\n", 1)[0]
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        return RuntimeUnavailable(RuntimeFault.GARBLED if status == 200 else RuntimeFault.FAILED, f"status {status}")
    inner = body.get("error", body)
    if not isinstance(inner, dict):
        inner = {"message": inner}
    if status == 200:
        code = inner.get("code")
        status = code if isinstance(code, int) else 500
    message = str(inner.get("message") or inner.get("detail") or "no message")[:MESSAGE_LENGTH]
    if status == 400 and message.startswith("Duplicate request ID"):
        return RuntimeUnavailable(RuntimeFault.DUPLICATE_RID, message)
    if status in REFUSALS:
        return CallRefused(message)
    if status == 429 or (status == 503 and "queue is full" in message):
        return RuntimeUnavailable(RuntimeFault.OVERLOADED, message)
    return RuntimeUnavailable(RuntimeFault.FAILED, f"status {status}: {message}")


def _label_logprobs(row: Sequence[Sequence[Any]], labels: Sequence[Label]) -> tuple[tuple[str, float], ...]:
    """The labels' log-probabilities; none at all where one is not finite: such come as null, for that one prompt."""
    by_id = {int(token): math.nan if logprob is None else float(logprob) for logprob, token, *_ in row}
    found = tuple((label.name, by_id[label.token_id]) for label in labels)
    return found if all(math.isfinite(logprob) for _, logprob in found) else ()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where a text should be")
    return value


def _whole(digits: str) -> int | float:
    """A whole number as orjson reads it: beyond 64 bits a float. Raises ValueError."""
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else float(digits)


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            body = json.loads(raw, parse_int=_whole)  # it may be JSON but for a NaN, which Python's own writes
        except (ValueError, RecursionError) as error:
            raise RuntimeUnavailable(RuntimeFault.GARBLED, f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RuntimeUnavailable(RuntimeFault.GARBLED, "not a JSON object")
    return body
