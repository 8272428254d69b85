"""What tests of chunks need beyond a database."""

import pytest

from embedded import models
from services.foundation.fleet import FleetModel
from services.judging.judge import Judge
from tests.factories import MODEL
from workers.runtime.tokenizer import load_tokenizer, vocabulary_size


@pytest.fixture(scope="session")
def judge() -> Judge:
    """An sdrm judge."""
    weights = str(models.make("scripted"))
    tokenizer = load_tokenizer(weights)
    model = FleetModel(name=MODEL, protocol="sdrm", weights=weights, context_length=8192)
    return Judge.of(model, tokenizer, vocabulary_size(tokenizer, weights))
