"""A model's tokenizer, and hashes that say which model it was.

Guarantee: nothing here needs torch, and nothing is executed that a model's directory brings along.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HASHED_SUFFIXES = frozenset({".json", ".jinja", ".txt", ".model"})  # configuration and tokenizers: small, and decisive
HASHED_BYTES = 64 << 20


def load_tokenizer(
    weights: str, revision: str | None = None, chat_template: Path | None = None
) -> "PreTrainedTokenizerFast":
    """The tokenizer of a hub id or directory, with its own chat template or the one of the file `chat_template`.

    Raises OSError, ValueError if there is none.
    """
    logger = logging.getLogger("transformers")
    logger.addFilter(
        lambda record: record.levelno >= logging.ERROR
    )  # before the import: it speaks while it is imported
    from transformers import AutoTokenizer  # noqa: PLC0415 - takes a second, and only workers need it

    logger.setLevel(logging.ERROR)
    tokenizer = AutoTokenizer.from_pretrained(weights, revision=revision, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise ValueError(f"{weights} has no fast tokenizer")
    if chat_template is not None:
        tokenizer.chat_template = chat_template.read_text(encoding="utf-8")
    return cast("PreTrainedTokenizerFast", tokenizer)


def vocabulary_size(tokenizer: "PreTrainedTokenizerFast", weights: str, revision: str | None = None) -> int:
    """How many token ids the model knows: the rows of its embedding, else, where its configuration is not on this
    machine, the entries of its tokenizer."""
    directory = Path(weights) if Path(weights).is_dir() else _cached(weights, revision)
    configuration = None if directory is None else directory / "config.json"
    if configuration is None or not configuration.is_file():
        return len(tokenizer)
    settings = json.loads(configuration.read_text(encoding="utf-8"))
    return int((settings.get("text_config") or settings)["vocab_size"])


def template_hash(tokenizer: "PreTrainedTokenizerFast") -> str | None:
    """SHA-256 of the chat template, in hexadecimal; None for a tokenizer without one."""
    template = tokenizer.chat_template
    if template is None:
        return None
    text = template if isinstance(template, str) else repr(sorted(template.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def weights_hash(weights: str, revision: str | None = None) -> str | None:
    """SHA-256, in hexadecimal, over the names and sizes of a model's files and the contents of its small ones.

    Reads no weights, so it takes milliseconds; two models of one architecture differ in it only where a name, a size or
    a configuration does. None when the files are not on this machine, as behind an attached server.
    """
    directory = Path(weights) if Path(weights).is_dir() else _cached(weights, revision)
    if directory is None:
        return None
    manifest = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        size = file.stat().st_size
        manifest.update(f"{file.relative_to(directory).as_posix()}\0{size}\0".encode())
        if file.suffix in HASHED_SUFFIXES and size <= HASHED_BYTES:
            manifest.update(hashlib.sha256(file.read_bytes()).digest())
    return manifest.hexdigest()


def _cached(weights: str, revision: str | None) -> Path | None:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - with transformers, only workers need it
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(weights, revision=revision, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
