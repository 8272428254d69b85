"""The tokenizer of the scripted model, read from a model's directory.

Guarantee: ids below `size` are answered, an id at or above it is one that would kill a real server.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


class Unusable(Exception):
    """The directory holds no tokenizer that the scripted runtime can speak with."""


class Vocabulary:
    """Encodes and decodes; knows the end token, the size and, where config.json tells, the context length."""

    def __init__(self, directory: Path) -> None:
        file = directory / "tokenizer.json"
        if not file.is_file():
            raise Unusable(f"there is no tokenizer.json in {directory}")
        self._tokenizer = Tokenizer.from_file(str(file))
        self.config: dict[str, Any] = _object(directory / "config.json")
        self.size = max(self._tokenizer.get_vocab_size(), int(self.config.get("vocab_size", 0)))
        self.end = self._end(_object(directory / "tokenizer_config.json"))
        self.piece = lru_cache(maxsize=4096)(lambda token: self.decode([token]))

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids; `special`: with what the tokenizer puts around a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of token ids, special tokens left out unless asked for."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=not special)
        return text

    def _end(self, tokenizer_config: dict[str, Any]) -> int:
        configured = self.config.get("eos_token_id")
        if isinstance(configured, list) and configured:
            configured = configured[0]
        if isinstance(configured, int):
            return configured
        token = tokenizer_config.get("eos_token")
        text = token.get("content") if isinstance(token, dict) else token
        end = self._tokenizer.token_to_id(text) if isinstance(text, str) else None
        if end is None:
            raise Unusable("neither config.json nor tokenizer_config.json names an end-of-sequence token")
        return int(end)


def _object(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
