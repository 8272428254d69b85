"""The fleet and how it does."""

from http import HTTPStatus

from flask import Response
from flask_openapi.blueprint import APIBlueprint

from api import openapi
from api.auth import authenticate
from api.routes.parameters import NoQuery
from api.session import parts, session
from services.contract.models import ModelList
from services.jobs.roster import committees, roster

blueprint = APIBlueprint(
    "models", __name__, url_prefix="/v1", abp_security=openapi.SECURED, abp_tags=[{"name": "models"}]
)
blueprint.before_request(authenticate)


@blueprint.get(
    "/models",
    operation_id="list_models",
    responses=openapi.answers(HTTPStatus.OK, "Every model of the fleet", {"application/json": ModelList}),
)
def list_models(query: NoQuery) -> Response:  # noqa: ARG001 - declares that there are no parameters
    """List the models and committees: protocol, task, health, what they do and what waits for them."""
    fleet = parts().fleet
    with session() as connection:
        models = ModelList(data=roster(connection, fleet), committees=committees(fleet))
    return Response(models.model_dump_json(), mimetype="application/json")
