"""Signatures, checked by the public library that receivers use."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from services.webhooks.sign import new_secret, signed_headers


def test_the_example_of_the_specification() -> None:
    headers = signed_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.fromtimestamp(1614265330, UTC),
        '{"test": 2432232314}',
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_what_is_signed_is_verified(body: str) -> None:
    secret = new_secret()
    headers = signed_headers("msg_1", datetime.now(UTC), body, [secret])
    Webhook(secret).verify(body.encode(), headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body + " ", headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body, {**headers, "webhook-id": "msg_2"}, json_parse=False)


def test_while_a_secret_rotates_both_verify() -> None:
    old, new, other = new_secret(), new_secret(), new_secret()
    headers = signed_headers("msg_1", datetime.now(UTC), "{}", [new, old])
    assert len(headers["webhook-signature"].split(" ")) == 2
    Webhook(old).verify("{}", headers)
    Webhook(new).verify("{}", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify("{}", headers)


def test_secrets_are_fresh_and_of_the_size_that_the_specification_asks_for() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    for secret in made:
        assert secret.startswith("whsec_")
        assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) <= 64
