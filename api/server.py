"""The API behind gunicorn: one process of threads.

Guarantee: on SIGTERM no new request is taken and the running ones are answered, within half a minute.
"""

from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication  # type: ignore[import-untyped] # gunicorn has no types
from gunicorn.glogging import Logger  # type: ignore[import-untyped]

from api.app import create_app
from services.foundation.settings import Settings

LONGEST_REQUEST_LINE = 8190  # a custom_id of 512 characters, percent-encoded, fits
GRACE = 30


class JsonLogger(Logger):  # type: ignore[misc] # gunicorn has no types
    """gunicorn's own lines, in the form of all others."""

    def setup(self, cfg: Any) -> None:
        """Leave the writing to this process's handler."""
        super().setup(cfg)
        for logger in (self.error_log, self.access_log):
            logger.handlers.clear()
            logger.propagate = True


class Server(BaseApplication):  # type: ignore[misc] # gunicorn has no types
    """gunicorn, with our options instead of its command line."""

    def __init__(self, settings: Settings, options: dict[str, Any]) -> None:
        self._settings = settings
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        """Hand our options to gunicorn."""
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """The application, made in the process that serves it."""
        return create_app(self._settings)


def serve(settings: Settings, host: str, port: int, workers: int, threads: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises Misconfigured."""
    create_app(settings)  # a wrong fleet stops here, with its reason, and not in every worker again and again
    options = {
        "bind": f"{host}:{port}",
        "worker_class": "gthread",
        "workers": workers,
        "threads": threads,
        "graceful_timeout": GRACE,
        "limit_request_line": LONGEST_REQUEST_LINE,
        "control_socket_disable": True,
        "proc_name": "assizes-api",
        "logger_class": JsonLogger,
        "loglevel": settings.log_level,
    }
    Server(settings, options).run()
