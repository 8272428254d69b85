"""The version of the service; `pyproject.toml` says the same."""

VERSION = "0.1.0"
