"""Committees, as a job takes them from the fleet.

Guarantee: a job keeps the committee that it was submitted with, its anchors included, whatever becomes of the fleet.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, text

from services.contract.options import CommitteeSettings, Options
from services.foundation.errors import Misconfigured
from services.foundation.fleet import Committee, Fleet
from services.foundation.jsontext import escaped
from services.jobs.options import contradictions, family_of, resolve
from services.judging.protocol import messages
from services.judging.scoring import ToScore
from services.reappraisal.anchors import AnchorSet, load_anchors
from services.vocabulary import Task

KEEP = text("INSERT INTO anchor_texts (sha256, texts) VALUES (:sha256, :texts) ON CONFLICT DO NOTHING")
KEPT = text("SELECT texts FROM anchor_texts WHERE sha256 = :sha256")


def anchors_of(committee: Committee) -> AnchorSet | None:
    """The anchors that a committee normalises by, if it does. Raises Misconfigured.

    A process reads each file once, at its start (`check_fleet`): what becomes of the file then changes no committee.
    """
    return _loaded(committee.anchors) if committee.normalise == "reference" else None


_loaded = cache(load_anchors)


def settle_committee(fleet: Fleet, committee: Committee, anchors: AnchorSet | None) -> CommitteeSettings:
    """A committee with everything resolved that a job keeps. Raises Misconfigured where a member cannot score."""
    judges = {}
    for member in committee.members:
        for model in member.models:
            family = family_of(fleet, model)
            if family.task is Task.SCORE:
                continue
            if family.task is not Task.JUDGE or family.slots != 1:
                message = "it is neither a reward model nor a judge that grades texts one by one"
                raise Misconfigured(f"the committee {committee.name} cannot have {model}: {message}")
            settings = resolve(Options(early_stop="never"), fleet.models[model], family)
            for fault in contradictions(model, settings, family):
                raise Misconfigured(f"the options of the model {model} are wrong: {fault.message}")
            judges[model] = settings
    return CommitteeSettings(
        name=committee.name,
        members={member.name: list(member.models) for member in committee.members},
        judges=judges,
        weights={member.name: committee.weights.get(member.name, 1.0) for member in committee.members},
        normalise=committee.normalise,
        anchors=None if anchors is None else anchors.sha256,
    )


def keep_anchors(connection: Connection, anchors: AnchorSet) -> None:
    """Store the anchors, once."""
    texts = [
        {
            "context": [{"role": role, "content": content} for role, content in anchor.context],
            "response": anchor.response,
        }
        for anchor in anchors.texts
    ]
    connection.execute(KEEP, {"sha256": anchors.sha256, "texts": escaped(texts)})


def kept_anchors(connection: Connection, sha256: str) -> list[ToScore]:
    """The anchors that were stored under this hash, each as a text to score."""
    anchors = json.loads(connection.execute(KEPT, {"sha256": sha256}).scalar_one())
    return [ToScore(messages(anchor["context"]), (anchor["response"],)) for anchor in anchors]


def scale_of(committee: Mapping[str, Any], model: str) -> str | None:
    """Names what a model's anchors are measured by: the texts, and how it hears. None where nothing is.

    `committee` is the job's settings of it. SHA-256, in hexadecimal.
    """
    if committee["anchors"] is None:
        return None
    how = json.dumps([committee["anchors"], committee["judges"].get(model)], sort_keys=True)
    return hashlib.sha256(how.encode()).hexdigest()
