"""A callback's form, and the body of an event."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from pydantic import ValidationError

from services.contract.webhooks import Callback, job_event_payload
from services.vocabulary import EventType

JOB = {
    "id": UUID("01990000-0000-7000-8000-000000000001"),
    "status": "completed_with_errors",
    "sequence": 3,
    "total": 7,
    "succeeded": 4,
    "failed": 1,
    "cancelled": 2,
    "expired": 0,
    "ended_at": datetime(2026, 11, 29, 12, 0, 0, 123456, UTC),
    "metadata_json": "{}",
}


def test_the_body_says_what_happened_and_where_to_read_on() -> None:
    body = json.loads(job_event_payload(EventType.JOB_COMPLETED, JOB, "https://assizes.example/"))
    assert body == {
        "type": "job.completed",
        "timestamp": "2026-11-29T12:00:00.123Z",
        "data": {
            "job_id": "job_01990000000070008000000000000001",
            "status": "completed_with_errors",
            "sequence": 3,
            "counts": {
                "total": 7,
                "queued": 0,
                "running": 0,
                "succeeded": 4,
                "failed": 1,
                "cancelled": 2,
                "expired": 0,
            },
            "results_url": "https://assizes.example/v1/jobs/job_01990000000070008000000000000001/results",
            "metadata": {},
        },
    }


@pytest.mark.parametrize(
    "metadata", ['{"a":1e999}', '{"n":12345678901234567890123}', r'{"s":"\u0000\ud800"}', '{"é":[]}']
)
def test_metadata_stands_in_the_body_exactly_as_sent(metadata: str) -> None:
    body = job_event_payload(EventType.JOB_FAILED, {**JOB, "metadata_json": metadata}, "https://assizes.example")
    assert body.endswith(f'"metadata":{metadata}}}}}')
    json.loads(body)
    body.encode()


def test_a_callback_hears_of_every_end_unless_it_says_which() -> None:
    assert set(Callback(url="https://example.com/hook").events) == set(EventType)
    only = Callback.model_validate({"url": "https://example.com/hook", "events": ["job.failed"]})
    assert only.events == (EventType.JOB_FAILED,)
    assert Callback.model_validate_json(only.model_dump_json()) == only


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "https://example.com:8443/a/b?c=d",
        "http://bücher.example/",
        "http://[2606:4700::1111]/",
        "https://EXAMPLE.com/%2F?a=%2F+",
    ],
)
def test_sound_urls_are_kept_as_they_are(url: str) -> None:
    assert Callback(url=url).url == url


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("ftp://example.com/", "http or https"),
        ("javascript:alert(1)", "http or https"),
        ("//example.com/", "http or https"),
        ("example.com", "http or https"),
        ("", "http or https"),
        ("http:///path", "no host"),
        ("http:example.com", "no host"),
        ("http://user@example.com/", "credentials"),
        ("http://user:secret@example.com/", "credentials"),
        ("http://:secret@example.com/", "credentials"),
        ("http://example.com%2f@127.0.0.1/", "credentials"),
        ("http://example.com\\@127.0.0.1/", "not a URL"),
        ("http://example.com:99999/", "not a URL"),
        ("http://[::1/", "not a URL"),
        ("http://exa mple.com/", "blanks or control"),
        ("http://example.com/\r\nX-Header: y", "blanks or control"),
        ("http://example.com/\x00", "blanks or control"),
        ("http://example.com/\ud800", "blanks or control"),
        ("http://example.com/" + "a" * 2048, "longer than"),
    ],
)
def test_unsound_urls_are_refused_with_the_reason(url: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Callback(url=url)


@pytest.mark.parametrize(
    "wrong", [{"events": []}, {"events": ["job.started"]}, {"include": "everything"}, {"secret": "whsec_"}]
)
def test_a_callback_has_no_other_form(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Callback.model_validate({"url": "https://example.com/hook", **wrong})
