"""The API in this process, on a real database and a real broker, and callers of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import Engine, text
from werkzeug.test import TestResponse

from api.app import create_app
from api.keys import create_key
from api.session import EXTENSION
from services.foundation.database import transaction
from services.foundation.identifiers import parsed
from services.foundation.settings import Settings
from tests.factories import MODEL, comparisons

REASONING = "other"
FLEET = f"""
[models.{MODEL}]
protocol = "sdrm"
weights = "nowhere"
options = {{ mode = "direct" }}
[models.{REASONING}]
protocol = "sdrm"
weights = "nowhere"
"""
JOB: dict[str, Any] = {"kind": "judgement", "judges": [MODEL]}


@pytest.fixture
def fleet_file(tmp_path: Path) -> Path:
    """A fleet of two models that nobody serves."""
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET, encoding="utf-8")
    return file


@pytest.fixture
def settings(database_url: str, redis_url: str, fleet_file: Path) -> Settings:
    """Settings of an API; a small limit on uploads."""
    return Settings(database_url=database_url, redis_url=redis_url, fleet=fleet_file, max_upload_bytes=4 << 20)


def started(settings: Settings) -> Iterator[Flask]:
    """An app whose connections are closed in the end."""
    app = create_app(settings)
    yield app
    app.extensions[EXTENSION].engine.dispose()
    app.extensions[EXTENSION].bell.close()


@pytest.fixture
def app(settings: Settings) -> Iterator[Flask]:
    """The API."""
    yield from started(settings)


@dataclass
class Caller:
    """Somebody with a key."""

    client: FlaskClient
    key: str

    @property
    def headers(self) -> dict[str, str]:
        """What says who it is."""
        return {"Authorization": f"Bearer {self.key}"}

    def get(self, path: str, **headers: str) -> TestResponse:
        """GET; header names with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(path, headers={**self.headers, **named})

    def post(self, path: str, **options: Any) -> TestResponse:
        """POST."""
        return self.client.post(path, headers={**self.headers, **options.pop("headers", {})}, **options)

    def delete(self, path: str) -> TestResponse:
        """DELETE."""
        return self.client.delete(path, headers=self.headers)

    def submit(self, items: Any = 3, **changes: Any) -> TestResponse:
        """Submit a job with its items in the body."""
        listed = comparisons(items) if isinstance(items, int) else items
        return self.post("/v1/jobs", json={**JOB, "items": listed, **changes})

    def submit_text(self, body: str | bytes) -> TestResponse:
        """Submit what is said to be JSON."""
        return self.post("/v1/jobs", data=body, content_type="application/json")

    def upload(self, items: bytes, **changes: Any) -> TestResponse:
        """Submit a job by upload."""
        return self.post("/v1/jobs", **form(("job", json.dumps({**JOB, **changes}).encode(), ""), ("items", items, "")))


@pytest.fixture
def caller(app: Flask, engine: Engine) -> Caller:
    """Somebody of the tenant acme."""
    return new_caller(app, engine, "acme")


def new_caller(app: Flask, engine: Engine, tenant: str) -> Caller:
    """Somebody with a new key of a tenant."""
    with transaction(engine) as connection:
        return Caller(app.test_client(), create_key(connection, tenant).key)


def form(*parts: tuple[str, bytes, str], boundary: str = "cut") -> dict[str, Any]:
    """A multipart body of (name, content, further headers)."""
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n{headers}\r\n'.encode() + content + b"\r\n"
        for name, content, headers in parts
    )
    return {
        "data": body + f"--{boundary}--\r\n".encode(),
        "content_type": f"multipart/form-data; boundary={boundary}",
    }


def id_of(response: TestResponse) -> UUID:
    """The identifier of the job that was answered."""
    assert response.json is not None
    found = parsed("job", response.json["id"])
    assert found is not None
    return found


def kept(engine: Engine) -> dict[str, int]:
    """How many rows there are of what a submission makes."""
    tables = ("job", "item", "chunk")
    with transaction(engine) as connection:
        return {table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in tables}


NOTHING = {"job": 0, "item": 0, "chunk": 0}


def check_problem(response: TestResponse, status: int, code: str) -> Mapping[str, Any]:
    """Assert that an answer is the problem that it should be."""
    assert response.status_code == status, response.text
    assert response.mimetype == "application/problem+json"
    problem = response.json
    assert problem is not None
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["request_id"] == response.headers["X-Request-Id"]
    assert problem["detail"]
    assert "Traceback" not in response.text
    return dict(problem)
