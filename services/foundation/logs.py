"""Structured logs: one JSON object a line on stderr.

Guarantee: what is bound with `structlog.contextvars` (job, chunk, epoch) stands on every line of that unit of work.
Callers' texts, keys and secrets are never passed to a logger.
"""

import logging
import sys

import structlog


def set_up_logs(level: str, process: str) -> None:
    """Configure this process's logs once, from its composition root."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr
    )
