"""A model's tokenizer and the hashes that say which model it was."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from embedded import models
from embedded.places import CHECKOUT
from workers.runtime.tokenizer import load_tokenizer, template_hash, vocabulary_size, weights_hash


def test_a_tokenizer_is_loaded_with_its_chat_template_and_nothing_is_printed() -> None:
    weights = models.make("scripted")
    program = (
        "from workers.runtime.tokenizer import load_tokenizer\n"
        f"tokenizer = load_tokenizer({str(weights)!r})\n"
        "print(tokenizer.apply_chat_template([{'role': 'user', 'content': 'Hi'}], tokenize=False))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert "Hi" in done.stdout
    assert done.stderr == ""


def test_the_templates_hash_is_that_of_its_text() -> None:
    weights = models.make("scripted")
    template = (weights / "chat_template.jinja").read_text()
    assert template_hash(load_tokenizer(str(weights))) == hashlib.sha256(template.encode()).hexdigest()


def test_the_vocabulary_is_the_models_where_it_is_known_else_the_tokenizers(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(models.make("scripted")))
    assert vocabulary_size(tokenizer, str(models.make("scripted"))) == len(tokenizer)
    (tmp_path / "config.json").write_text('{"vocab_size": 151936}')
    assert vocabulary_size(tokenizer, str(tmp_path)) == 151936
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 99}}')
    assert vocabulary_size(tokenizer, str(tmp_path)) == 99


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A directory like a model's."""
    (tmp_path / "config.json").write_text('{"a": 1}')
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"), [("config.json", '{"a": 2}'), ("model.safetensors", "\0" * 101), ("new.bin", "")]
)
def test_the_weights_hash_changes_with_names_sizes_and_configuration(weights: Path, name: str, content: str) -> None:
    before = weights_hash(str(weights))
    assert before == weights_hash(str(weights))
    (weights / name).write_text(content)
    assert weights_hash(str(weights)) not in (before, None)


def test_weights_that_are_not_here_have_no_hash() -> None:
    assert weights_hash("nobody/has-this-model") is None
    assert weights_hash("not a name/at/all") is None
