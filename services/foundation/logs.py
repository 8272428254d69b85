"""Structured logs: one JSON object a line on stderr, of our own code and of every library alike.

Guarantee: what is bound with `structlog.contextvars` (job, chunk, epoch) stands on every line of that unit of work, and
`process` on every line. Callers' texts, keys and secrets are never passed to a logger. What ends a thread or the
process is a line too.
"""

import logging
import sys
import threading
from types import TracebackType

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

OURS = ("api", "services", "workers")

log = structlog.get_logger(__name__)


def set_up_logs(level: str, process: str) -> None:
    """Configure this process's logs once, from its composition root. Libraries are heard from warnings on."""

    def name_process(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
        return {**line, "process": process}

    known: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        name_process,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=known,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    structlog.configure(
        processors=[*known, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    sys.excepthook = _process_ended
    threading.excepthook = _thread_ended


def _process_ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    log.critical("process_ended", exc_info=(kind, error, trace))


def _thread_ended(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is not SystemExit:
        name = ended.thread.name if ended.thread else None
        log.critical("thread_ended", thread=name, exc_info=(ended.exc_type, ended.exc_value, ended.exc_traceback))
