"""Signing webhooks as the Standard Webhooks specification says (standardwebhooks.com).

Guarantee: whoever holds one of the secrets can tell that id, time and body came from here unchanged.
"""

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime

from standardwebhooks import Webhook

SECRET_BYTES = 32  # the specification allows 24 to 64


def new_secret() -> str:
    """A fresh secret, `whsec_` and base64."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode("ascii")


def signed_headers(message_id: str, sent_at: datetime, body: str, signing: Sequence[str]) -> dict[str, str]:
    """The three headers of a message: one `v1` signature for each secret in `signing`, so that a secret can rotate.

    `sent_at` is in UTC. Raises ValueError when a secret is not base64.
    """
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(sent_at.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(message_id, sent_at, body) for secret in signing),
    }
