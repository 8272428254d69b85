"""What was heard, as rows: the trace of a call, and what an item came to (columns in `record.py`)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from services.foundation.jsontext import escaped
from services.jobs.answer import Answer
from services.jobs.claim import Claim
from services.judging.heard import Heard
from services.judging.judge import Question
from services.judging.opinion import Opinion
from services.judging.pairings import Seating
from services.judging.panel import Verdict
from services.judging.proceeding import CallKey, Spent
from services.judging.protocol import Family
from services.judging.runtime import CallRefused, Completion, Sampling
from services.judging.scoring import Scores
from services.judging.writing import Written
from services.vocabulary import ItemStatus


def trace_row(
    held: Claim,
    seq: int,
    key: CallKey,
    seating: Seating,
    family: Family,
    question: Question,
    wanted: Sampling,
    heard: Heard,
    answer: Answer | None,
    epoch_id: UUID,
    *,
    keep_prompt: bool,
) -> tuple[Any, ...]:
    """The trace of one call; `answer` is None for one that was never sent.

    `prompt_tokens` are the runtime's own count; of a call that was never sent, the length that did not fit. A
    conversation that the model's chat template refused has no prompt.
    """
    came = answer.came if answer else None
    answered = came if isinstance(came, Completion) else None
    refused = came.message if isinstance(came, CallRefused) else question.prompt.refused
    text = question.prompt.text if question.prompt.refused is None else None
    return (
        held.day,
        held.job_id,
        seq,
        held.stage,
        held.model,
        key.number,
        key.order if len(seating.candidates) > 1 else None,
        list(seating.candidates),
        key.sample,
        key.forced,
        epoch_id,
        heard.outcome,
        json.dumps(reading_json(heard, family)),
        escaped(text) if keep_prompt and text is not None else None,
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() if text is not None else None,
        escaped(answered.text) if answered else None,
        answered.finish_reason if answered else None,
        _prompt_tokens(question, answer),
        answered.cached_tokens if answered else None,
        answered.completion_tokens if answered else None,
        json.dumps(dict(answered.label_logprobs)) if answered and answered.label_logprobs else None,
        _sampling_json(question, wanted),
        escaped(refused) if refused is not None else None,
        answer.sent_at if answer else None,
        answer.waited_s * 1000 if answer else None,
        answered.queue_s * 1000 if answered and answered.queue_s is not None else None,
    )


def reading_json(heard: Heard, family: Family) -> dict[str, Any]:
    """What a trace keeps of a reading, and by whose rules it was read."""
    return heard.as_json() | {"protocol": f"{family.name}/{family.version}"}


def _prompt_tokens(question: Question, answer: Answer | None) -> int | None:
    if answer is None:
        return len(question.prompt.ids) if question.prompt.refused is None else None
    return answer.came.prompt_tokens if isinstance(answer.came, Completion) else None


def _sampling_json(question: Question, wanted: Sampling) -> str | None:
    if question.sampling is None:
        return None
    sent = asdict(question.sampling)
    if question.labels:
        sent["labels"] = [label.name for label in question.labels]
    elif sent["max_tokens"] < wanted.max_tokens:
        sent["max_tokens_wanted"] = wanted.max_tokens
    return json.dumps(sent)


def opinion_row(job_id: UUID, seq: int, opinion: Opinion) -> tuple[Any, ...]:
    """One judge's opinion on one item."""
    return (job_id, seq, opinion.judge, json.dumps(opinion.as_json()))


def written_row(job_id: UUID, seq: int, written: Written) -> tuple[Any, ...]:
    """What a model wrote for one item."""
    texts = escaped([text.as_json() for text in written.texts])
    return (job_id, seq, texts, sorted(written.flags), *_usage(written.spent))


def scores_row(job_id: UUID, seq: int, model: str, epoch_id: UUID, scores: Scores) -> tuple[Any, ...]:
    """What a model of a committee makes of one item's texts."""
    by_text = map(json.dumps, (scores.values, scores.outcomes, scores.valid, scores.asked))
    return (job_id, seq, model, epoch_id, *by_text, sorted(scores.flags), *_usage(scores.spent))


def assessment_row(job_id: UUID, seq: int, selected: int | None, body: Mapping[str, Any]) -> tuple[Any, ...]:
    """A committee's word on one item."""
    return (job_id, seq, selected, escaped(body))


def settled_row(
    job_id: UUID,
    seq: int,
    spent: Spent,
    *,
    error: Mapping[str, str] | None,
    opinion: Opinion | None = None,
    missing: Sequence[str] = (),
) -> tuple[Any, ...]:
    """What an item of a reappraisal or a scoring job came to. `opinion`: how a chosen text compares with its baselines.

    With one baseline its winner is the verdict's: A is the chosen text.
    """
    pair = opinion if opinion is not None and opinion.standing is None else None
    return (
        job_id,
        seq,
        ItemStatus.SUCCEEDED if error is None else ItemStatus.FAILED,
        pair.winner if pair else None,
        pair.p_a if pair else None,
        pair.consistent if pair else None,
        None,
        list(missing) or None,
        None,
        error["code"] if error else None,
        error["message"] if error else None,
        *_usage(spent),
    )


def _usage(spent: Spent) -> tuple[int, int, int, int]:
    return spent.calls, spent.prompt_tokens, spent.cached_tokens, spent.completion_tokens


def verdict_row(job_id: UUID, seq: int, reached: Verdict, *, spent: bool = True) -> tuple[Any, ...]:
    """The panel's verdict on one item. Of more than two candidates the winner is an index, in digits.

    What its opinions took counts as `spent` unless another job has spent it.
    """
    opinions, standing = reached.opinions if spent else (), reached.standing
    return (
        job_id,
        seq,
        ItemStatus.FAILED if reached.error else ItemStatus.SUCCEEDED,
        reached.winner if standing is None else str(standing.winner),
        reached.p_a,
        reached.consistent,
        None if standing is None else json.dumps(standing.as_json()),
        list(reached.missing) or None,
        reached.disagreement,
        reached.error,
        reached.message,
        sum(opinion.calls for opinion in opinions),
        sum(opinion.prompt_tokens for opinion in opinions),
        sum(opinion.cached_tokens for opinion in opinions),
        sum(opinion.completion_tokens for opinion in opinions),
    )
