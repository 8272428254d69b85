"""SGLang 0.5.23's JSON: the same keys and types as a real server's answers, errors and reports.

Guarantee: pure. What a caller of SGLang reads is here and means the same; what only its operators read holds a
plausible constant.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from embedded.scripted.engine import Counters, Engine, Flight

VERSION = "0.5.23"
DROPPED: Mapping[str, object] = {"type": "abort", "message": "Abort in waiting queue"}
RESERVED = 6  # a prompt must be shorter than the context length less these

SAMPLING_FIELDS = (
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
    "beam_width",
    "watermark",
    "choice",
)

type_json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Identity:
    """What this server says it is."""

    name: str
    weights: str
    context_length: int
    model_type: str
    architectures: Sequence[str]
    port: int
    max_running: int
    max_queued: int | None
    max_total_tokens: int
    start: int
    is_embedding: bool


def completion(flight: Flight, text: str, ids: Sequence[int], logprobs: type_json, ended: bool) -> type_json:
    """The answer to one `/generate`, or one event of its stream (`ended` false)."""
    now = time.time()
    meta: type_json = {"id": flight.rid, "finish_reason": finish_reason(flight) if ended else None}
    versions = [{"version": "default", "start": 0, "end": len(ids)}]
    if flight.started is None:
        return _dropped(flight)
    cached = flight.cached_tokens
    meta |= {
        "prompt_tokens": flight.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "storage_prefetch_wait": 0.0,
        "storage_staging_wait": 0.0,
        "forward_entry_time": flight.started,
        "prefill_finished_time": flight.first_token,
        "queue_time": flight.started - flight.received,
        **logprobs,
        "reasoning_tokens": 0,
        "completion_tokens": len(ids),
        "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
    }
    if ended:
        spent = max(now - (flight.first_token or now), 1e-6)
        meta |= {
            "weight_versions": versions,
            "e2e_latency": now - flight.received,
            "request_received_ts": flight.received,
            "first_token_latency": (flight.first_token or now) - flight.received,
            "api_server_dispatch_finish_ts": flight.received,
            "request_finished_ts": now,
        }
        if len(ids) > 1:
            meta["decode_throughput"] = len(ids) / spent
    meta["response_sent_to_client_ts"] = now
    return {"text": text, "output_ids": list(ids), "meta_info": meta}


def classification(flight: Flight) -> type_json:
    """The answer to one `/classify`. One aborted while it runs looks as if it had not started."""
    if flight.aborted:
        return _dropped(flight)
    now = time.time()
    meta: type_json = {
        "id": flight.rid,
        "finish_reason": dict(flight.answer.finish),
        "prompt_tokens": flight.prompt_tokens,
        "weight_version": "default",
        "num_retractions": 0,
        "queue_time": 0.0,
        "e2e_latency": now - flight.received,
        "request_received_ts": flight.received,
        "first_token_latency": now - flight.received,
        "api_server_dispatch_finish_ts": flight.received,
        "request_finished_ts": now,
        "response_sent_to_client_ts": now,
    }
    return {"embedding": list(flight.answer.numbers), "meta_info": meta}


def _dropped(flight: Flight) -> type_json:
    """The answer to a call that was aborted in the queue: no token counts, no times."""
    now = time.time()
    meta: type_json = {
        "id": flight.rid,
        "finish_reason": dict(DROPPED),
        "weight_version": "default",
        "e2e_latency": now - flight.received,
        "weight_versions": [{"version": "default", "start": 0, "end": 0}],
        "completion_tokens": 0,
        "response_sent_to_client_ts": now,
    }
    return {"text": "", "output_ids": [], "meta_info": meta}


def finish_reason(flight: Flight) -> type_json:
    """Why the flight ended."""
    if not flight.aborted:
        return dict(flight.answer.finish)
    if flight.started is None:
        return dict(DROPPED)
    return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def flat_error(message: str, kind: str, code: int) -> type_json:
    """The shape of request validation and of a full queue."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def error(message: str) -> type_json:
    """The shape of most refusals of `/generate`."""
    return {"error": {"message": message}}


def missing(path: str) -> type_json:
    """What a 404 says."""
    name = path.removeprefix("/v1/models/")
    if name == path:
        return {"detail": "Not Found"}
    message = f"The model '{name}' does not exist"
    return {"error": {"message": message, "type": "invalid_request_error", "param": "model", "code": "model_not_found"}}


def model_info(who: Identity) -> type_json:
    """`/model_info`."""
    return {
        "model_path": who.weights,
        "served_model_name": who.name,
        "tokenizer_path": who.weights,
        "is_generation": not who.is_embedding,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": "auto",
        "reasoning_parser": None,
        "tool_call_parser": None,
        "disaggregation_mode": "null",
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": who.model_type,
        "architectures": list(who.architectures),
    }


def models(who: Identity, started: float) -> type_json:
    """`/v1/models`."""
    entry = {"id": who.name, "object": "model", "created": int(started), "owned_by": "sglang", "root": who.weights}
    return {"object": "list", "data": [{**entry, "parent": None, "max_model_len": who.context_length}]}


def server_info(who: Identity) -> type_json:
    """`/server_info`: the arguments that a caller may ask for."""
    unset = ("max_ep_size", "max_mamba_cache_size", "max_lora_rank", "max_loaded_loras")
    state = {
        **dict.fromkeys(unset),
        "max_loras_per_batch": 8,
        "max_lora_chunk_size": 16,
        "max_prefill_tokens": 16384,
        "max_running_requests": who.max_running,
        "max_queued_requests": who.max_queued,
        "max_total_tokens": who.max_total_tokens,
        "effective_max_running_requests_per_dp": who.max_running,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 0.0,
            "kvcache": 0.0,
            "startup_available": 0.0,
            "token_capacity": who.max_total_tokens,
            "token_capacity_swa": None,
        },
    }
    return {
        "model_path": who.weights,
        "served_model_name": who.name,
        "tokenizer_path": who.weights,
        "device": "cpu",
        "dtype": "auto",
        "attention_backend": "scripted",
        "sampling_backend": "scripted",
        "grammar_backend": "scripted",
        "context_length": who.context_length,
        "is_embedding": who.is_embedding,
        "mem_fraction_static": 0.0,
        "max_running_requests": who.max_running,
        "max_queued_requests": who.max_queued,
        "max_total_tokens": who.max_total_tokens,
        "chunked_prefill_size": 4096,
        "max_prefill_tokens": 16384,
        "schedule_policy": "fcfs",
        "random_seed": who.start,  # SGLang draws one at each start
        "tp_size": 1,
        "dp_size": 1,
        "enable_metrics": True,
        "enable_cache_report": True,
        "disable_radix_cache": False,
        "page_size": 1,
        "chat_template": None,
        "reasoning_parser": None,
        "tool_call_parser": None,
        "status": "ready",
        "max_total_num_tokens": who.max_total_tokens,
        "internal_states": [state],
        "version": VERSION,
        "host": "127.0.0.1",
        "port": who.port,
        "api_key": None,
        "max_req_input_len": who.context_length - RESERVED,
        "scripted": True,
    }


def loads(who: Identity, engine: Engine) -> type_json:
    """`/v1/loads`: live gauges."""
    running, waiting = len(engine.running), len(engine.waiting)
    used = sum(flight.prompt_tokens + flight.written for flight in engine.running.values())
    queued = sum(flight.prompt_tokens for flight in engine.waiting.values())
    counters = engine.counters
    entry = {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": running,
        "num_waiting_reqs": waiting,
        "num_waiting_uncached_tokens": queued,
        "num_used_tokens": used,
        "num_total_tokens": used + queued,
        "num_active_tokens": used + queued,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": who.max_total_tokens,
        "max_running_requests": who.max_running,
        "token_usage": round(used / who.max_total_tokens, 4),
        "gen_throughput": 0.0,
        "cache_hit_rate": _share(counters),
        "utilization": 0.0,
        "total_prefill_uncached_tokens": counters.prompt_tokens - counters.cached_tokens,
        "total_prefill_busy_us": 0,
        "memory": {"weight_gb": 0.0, "kv_cache_gb": 0.0, "graph_gb": 0.0, "token_capacity": who.max_total_tokens},
        "queues": {"waiting": waiting, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
    }
    stamp = datetime.now(UTC).isoformat()
    return {"timestamp": stamp, "version": VERSION, "accelerator": None, "num_accelerators": 1, "loads": [entry]}


def metrics(who: Identity, engine: Engine) -> str:
    """`/metrics`: the series that a caller may watch."""
    counters = engine.counters
    used = sum(flight.prompt_tokens + flight.written for flight in engine.running.values())
    gauges = {
        "max_total_num_tokens": who.max_total_tokens,
        "context_len": who.context_length,
        "num_running_reqs": len(engine.running),
        "num_queue_reqs": len(engine.waiting),
        "num_used_tokens": used,
        "token_usage": used / who.max_total_tokens,
        "cache_hit_rate": _share(counters),
        "gen_throughput": 0.0,
    }
    totals = {
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generation_tokens,
        "cached_tokens_total": counters.cached_tokens,
        "num_requests_total": counters.requests,
        "num_aborted_requests_total": counters.aborted,
    }
    labels = f'{{engine_type="unified",model_name="{who.name}"}}'
    lines = []
    for kind, series in (("gauge", gauges), ("counter", totals)):
        for name, value in series.items():
            lines += [f"# TYPE sglang:{name} {kind}", f"sglang:{name}{labels} {float(value)}"]
    lines.append("# TYPE sglang:realtime_tokens_total counter")
    for mode, tokens in zip(("prefill_compute", "decode"), engine.computed(), strict=True):
        own = f'{{engine_type="unified",mode="{mode}",model_name="{who.name}"}}'
        lines.append(f"sglang:realtime_tokens_total{own} {float(tokens)}")
    return "\n".join(lines) + "\n"


def _share(counters: Counters) -> float:
    return round(counters.cached_tokens / counters.prompt_tokens, 4) if counters.prompt_tokens else 0.0
