"""The API described: OpenAPI 3.1 for programs, a page without outside assets for people.

Guarantee: both are made of the same routes and the same contract models that answer requests.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Flask, render_template_string
from flask import Response as HttpResponse
from flask_openapi.openapi import OpenAPI
from flask_openapi.types import ResponseDict
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from services.contract.items import Comparison, Response, Scenario
from services.contract.jobs import InlineJobRequest, Job, JobPage, JobRequest, RereadRequest, RetryRequest
from services.contract.models import ModelList
from services.contract.problems import Problem
from services.contract.reports import Report
from services.contract.results import Result, ResultDetail, ResultPage, Trace

VERSION = "3.1.0"
REFERENCE = "#/components/schemas/{model}"
SENT: tuple[type[BaseModel], ...] = (
    JobRequest,
    InlineJobRequest,
    RetryRequest,
    RereadRequest,
    Comparison,
    Scenario,
    Response,
)
ANSWERED: tuple[type[BaseModel], ...] = (
    Job,
    JobPage,
    Result,
    ResultPage,
    ResultDetail,
    Trace,
    Report,
    ModelList,
    Problem,
)
KEY: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
SECURED: list[dict[str, list[str]]] = [{"bearer": []}]
Shape = type[BaseModel] | Mapping[str, Any]


def schema(model: type[BaseModel]) -> dict[str, str]:
    """A reference to a contract model."""
    return {"$ref": REFERENCE.format(model=model.__name__)}


def answers(status: HTTPStatus, description: str, content: Mapping[str, Shape], *errors: HTTPStatus) -> ResponseDict:
    """The `responses` of a route: one success, and problems for `errors`."""
    shown = {
        kind: {"schema": schema(shape) if isinstance(shape, type) else dict(shape)} for kind, shape in content.items()
    }
    wrong = {"application/problem+json": {"schema": schema(Problem)}}
    every = (*errors, HTTPStatus.UNAUTHORIZED, HTTPStatus.UNPROCESSABLE_ENTITY)
    success = {"description": description, "content": shown} if shown else {"description": description}
    return {
        str(int(status)): success,
        **{str(int(error)): {"description": error.phrase, "content": wrong} for error in every},
    }


def describe(app: OpenAPI) -> dict[str, Any]:
    """The OpenAPI document of `app`, once its routes are registered."""
    document: dict[str, Any] = app.api_doc
    sent: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in SENT]
    answered: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "serialization") for model in ANSWERED]
    _, definitions = models_json_schema([*sent, *answered], ref_template=REFERENCE)
    document["components"]["schemas"] = definitions["$defs"]
    for path in document["paths"].values():
        for operation in path.values():
            if text := operation.get("description"):
                operation["description"] = text.replace("<br/>", "\n").strip()
            if operation.get("security") is None:
                operation["responses"].pop(str(int(HTTPStatus.UNPROCESSABLE_ENTITY)), None)
    return document


def install(app: Flask, document: Mapping[str, Any]) -> None:
    """Serve the document at /openapi.json and the page at /docs."""

    def openapi_json() -> HttpResponse:
        return HttpResponse(json.dumps(document), mimetype="application/json")

    def docs() -> HttpResponse:
        response = HttpResponse(render_template_string(PAGE, document=document), mimetype="text/html")
        response.headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'"
        return response

    app.add_url_rule("/openapi.json", view_func=openapi_json)
    app.add_url_rule("/docs", view_func=docs)


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ document.info.title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 3rem; } h3 { margin: 2rem 0 .3rem; font-family: ui-monospace, monospace; font-size: 1rem; }
.method { background: #234; color: #fff; padding: .1rem .5rem; border-radius: .2rem; }
table { border-collapse: collapse; width: 100%; } td, th { border-bottom: 1px solid #ddd; padding: .25rem .5rem;
text-align: left; vertical-align: top; } code, pre { font: .9rem ui-monospace, monospace; }
pre { background: #f4f4f4; padding: .7rem; overflow: auto; } .dim { color: #666; }
</style>
</head>
<body>
{%- macro type_of(shape) -%}
  {%- if shape['$ref'] -%}
    <a href="#{{ shape['$ref'].rsplit('/', 1)[-1] }}">{{ shape['$ref'].rsplit('/', 1)[-1] }}</a>
  {%- elif shape.anyOf -%}{%- for part in shape.anyOf -%}{{ ' or ' if loop.index0 }}{{ type_of(part) }}{%- endfor -%}
  {%- elif shape.enum -%}{{ shape.enum|map('tojson')|join(', ') }}
  {%- elif shape.const is defined -%}{{ shape.const|tojson }}
  {%- elif shape.type == 'array' -%}list of {{ type_of(shape['items'] or {}) }}
  {%- else -%}{{ shape.format or shape.type or 'any' }}{%- endif -%}
{%- endmacro -%}
<h1>{{ document.info.title }} <span class="dim">{{ document.info.version }}</span></h1>
<p>{{ document.info.description }}</p>
<p>For programs: <a href="/openapi.json">openapi.json</a> (OpenAPI {{ document.openapi }}).</p>
<h2>Calls</h2>
{% for path, operations in document.paths.items() %}{% for method, call in operations.items() %}
<h3><span class="method">{{ method|upper }}</span> {{ path }}</h3>
<p><b>{{ call.summary }}</b> {{ call.description or '' }}</p>
{% if call.parameters %}<table>
{% for parameter in call.parameters %}<tr><td><code>{{ parameter.name }}</code></td>
<td class="dim">{{ parameter['in'] }}{{ ', required' if parameter.required }}</td>
<td>{{ type_of(parameter.schema) }}</td><td>{{ parameter.description or '' }}</td></tr>{% endfor %}
</table>{% endif %}
{% if call.requestBody %}<p>Body:{% for kind, body in call.requestBody.content.items() %}
<code>{{ kind }}</code> {{ type_of(body.schema) }}{{ ', ' if not loop.last }}{% endfor %}</p>{% endif %}
<table>{% for status, response in call.responses.items() %}<tr><td>{{ status }}</td><td>{{ response.description }}</td>
<td>{% for kind, body in (response.content or {}).items() %}<code>{{ kind }}</code> {{ type_of(body.schema) }}
{% endfor %}</td></tr>{% endfor %}</table>
{% endfor %}{% endfor %}
<h2>Shapes</h2>
{% for name, shape in document.components.schemas.items() %}
<h3 id="{{ name }}">{{ name }}</h3>
<p>{{ shape.description or '' }}{% if shape.enum %} {{ shape.enum|map('tojson')|join(', ') }}{% endif %}</p>
{% if shape.properties %}<table>{% for field, inner in shape.properties.items() %}
<tr><td><code>{{ field }}</code></td><td class="dim">{{ 'required' if field in (shape.required or []) }}</td>
<td>{{ type_of(inner) }}</td><td>{{ inner.description or '' }}</td></tr>{% endfor %}</table>{% endif %}
{% for example in shape.examples or [] %}<pre>{{ example|tojson(indent=2) }}</pre>{% endfor %}
{% endfor %}
</body>
</html>
"""
