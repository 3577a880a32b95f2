"""Which objects own an object: by ownerReferences, and by labels where the owner in between is not there.

Read by `agent.forecast.workload_kinds` for `agent.forecast.owners`. What is malformed counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.model.fields import SHOWN, mapping_of, mappings_in, plain

MOST_OWNERS = 100
_BY_LABEL = (
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"), ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("training.kubeflow.org/job-name", "MPIJob"), ("ray.io/originated-from-cr-name", "RayJob"),
    ("ray.io/originated-from-cr-name", "RayService"), ("openshift.io/deployment-config.name", "DeploymentConfig"),
)  # fmt: skip
"""Labels of pods, and of what is between, that name the object above."""
_HASHES = (("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout"))


@dataclass(frozen=True, slots=True)
class ObjectId:
    """How one object names another: kind, namespace/name, and the uid, "" where it is not said."""

    kind: str
    key: str
    uid: str = ""


def owners_of(metadata: Mapping[str, Any], space: str) -> tuple[ObjectId, ...]:
    """The owners of an object of a namespace, its controller first, and then what its labels name."""
    found = [
        (each.get("controller") is not True, ObjectId(word(each.get("kind")), f"{space}/{word(each.get('name'))}",
                                                      word(each.get("uid"))))
        for each in mappings_in(metadata.get("ownerReferences"), MOST_OWNERS)
    ]  # fmt: skip
    return (*(owner for _, owner in sorted(found, key=lambda each: each[0])), *_above(metadata, space))


def _above(metadata: Mapping[str, Any], space: str) -> list[ObjectId]:
    """What made the owner of an object, as far as labels say it: the owner itself may not be among the documents."""
    labels = {**mapping_of(metadata.get("annotations")), **mapping_of(metadata.get("labels"))}
    owner = next((word(each.get("name")) for each in mappings_in(metadata.get("ownerReferences"), MOST_OWNERS)), "")
    found = []
    for label, kind in _HASHES:
        made = word(labels.get(label))
        if made and owner.endswith(f"-{made}"):
            found.append(ObjectId(kind, f"{space}/{owner.removesuffix(f'-{made}')}"))
    for label, kind in _BY_LABEL:
        if name := word(labels.get(label)):
            found.append(ObjectId(kind, f"{space}/{name}"))
    return found if owner else []


def word(value: object) -> str:
    """A name as far as it is read, in printable characters; "" for what is no text."""
    return plain(value[: 4 * SHOWN]) if isinstance(value, str) else ""
