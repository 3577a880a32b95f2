"""Pod templates in an object of any kind, and how many pods of each its controller makes.

Kubernetes' own workloads have one at spec.template. Operators' kinds have several, in places of their own; what is
common to them is followed here:

    a template     a mapping under a key that ends with "template" (template, leaderTemplate, podTemplate) whose spec
                   has a list of containers; any mapping below spec that has one itself (podSpec, worker, predictor)
    how many       the product of `replicas` of all mappings around it; of a Job's specification, as many as run at
                   once; 1 where nothing is said

So Kubeflow's jobs (spec.*ReplicaSpecs.ROLE), Volcano's Job (spec.tasks), RayCluster and RayJob (headGroupSpec,
workerGroupSpecs; numOfHosts), LeaderWorkerSet (size), JobSet (replicatedJobs), Argo's Rollout, OpenShift's
DeploymentConfig, OpenKruise's sets and kinds that are made tomorrow are read alike. Nothing in a body is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import BadPodError
from agent.model.fields import Field, show

MOST_REPLICAS = 100_000
MOST_TEMPLATES = 1000
DEEPEST = 16
"""Levels below spec at which a template is looked for; kinds that are known have it within eight."""
MOST_LOOKED_AT = 100_000
"""Mappings and lists of one object."""
_PLAIN = frozenset({"spec", "template", "podSpec"})
_MARKS = frozenset({"name", "image"})
"""Keys of which every container has one."""
_ODD = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """One template.

    Attributes:
        metadata, spec: of its pods.
        count: how many pods are made of it.
        role: what tells it from the object's other templates: a DNS label, "" where nothing does.
    """

    metadata: Field
    spec: Field
    count: int = 1
    role: str = ""


def templates_in(spec: Field) -> list[PodTemplate]:
    """All pod templates below an object's spec, in the order of the document.

    Raises:
        BadPodError: a number of replicas is none, or there is more than the bounds above allow.
    """
    left = [MOST_LOOKED_AT]
    found = list[PodTemplate]()
    for each in _below(spec, 1, "", DEEPEST, left):
        found.append(each)
        if len(found) > MOST_TEMPLATES:
            raise spec.wrong(f"has more than {MOST_TEMPLATES} pod templates")
    return found


def count_of(field: Field, default: int) -> int:
    """A number of replicas; raises BadPodError where it is none."""
    if not field:
        return default
    try:
        return field.integer(0, MOST_REPLICAS)
    except BadPodError:
        raise field.wrong(f"must be a whole number from 0 to {MOST_REPLICAS}, not {show(field.value)}") from None


def at_once(spec: Field, succeeded: int = 0) -> int:
    """How many pods of a Job's specification run at once, when so many have succeeded."""
    parallelism = count_of(spec.get("parallelism"), 1)
    completions = spec.get("completions")
    return min(parallelism, max(0, count_of(completions, 1) - succeeded)) if completions else parallelism


def _below(field: Field, count: int, role: str, depth: int, left: list[int]) -> Iterator[PodTemplate]:
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        return
    if isinstance(field.value, Mapping):
        count *= _beside(field)
        for key, part in field.value.items():
            if not isinstance(key, str) or not isinstance(part, Mapping | list):
                continue
            step = field.at(part, f".{key[:60]}")
            template = _template(key, step, field)
            if template is None:
                yield from _below(step, count, role if key in _PLAIN else _label(key) or role, depth - 1, left)
            else:
                own = _label(key.lower().removesuffix("template").removesuffix("pod")) if key not in _PLAIN else ""
                metadata, spec = template
                yield PodTemplate(metadata, _with_names(spec), count * _share(field, key), own or role)
    elif isinstance(field.value, list):
        for number, part in enumerate(field.value):
            if isinstance(part, Mapping | list):
                item = field.at(part, f"[{number}]")
                yield from _below(item, count, _item_role(part) or f"{role}-{number}".strip("-"), depth - 1, left)


def _template(key: str, part: Field, holder: Field) -> tuple[Field, Field] | None:
    """Metadata and specification, where a mapping is a pod template or a pod's specification."""
    if not isinstance(part.value, Mapping):
        return None
    spec = part.value.get("spec")
    if key.lower().endswith("template") and isinstance(spec, Mapping) and _has_containers(spec):
        return part.get("metadata"), part.get("spec")
    if not _has_containers(part.value):
        return None
    beside = holder.get("metadata") if key == "spec" else Field(None, f"{part.path}.metadata", part.fault)
    return beside, part


def _has_containers(spec: Mapping[str, object]) -> bool:
    found = spec.get("containers")
    return isinstance(found, list) and any(isinstance(each, Mapping) and _MARKS & each.keys() for each in found)


def _with_names(spec: Field) -> Field:
    """A specification whose containers all have names: Knative's Service may leave them out."""
    found = spec.mapping()
    containers = found.get("containers")
    if not isinstance(containers, list) or all(isinstance(each, Mapping) and "name" in each for each in containers):
        return spec
    given = [
        {"name": f"container-{number}", **each} if isinstance(each, Mapping) else each
        for number, each in enumerate(containers)
    ]
    return spec.at({**found, "containers": given}, "")


def _beside(field: Field) -> int:
    """How many times what a mapping holds is made."""
    found = field.value
    if not isinstance(found, Mapping) or found.get("suspend") is True:
        return 0
    least = count_of(field.get("minReplicas"), 0) if "groupName" in found else 1  # of a RayCluster's workers
    count = count_of(field.get("replicas"), least) * count_of(field.get("numOfHosts"), 1)
    if "template" in found and ("parallelism" in found or "completions" in found):
        count *= at_once(field)
    return count


def _share(field: Field, key: str) -> int:
    """Of a LeaderWorkerSet's group of `size` pods one is the leader, which may have a template of its own."""
    if key != "workerTemplate":
        return 1
    return max(0, count_of(field.get("size"), 1) - bool(field.get("leaderTemplate")))


def _item_role(part: object) -> str:
    if not isinstance(part, Mapping):
        return ""
    name = part.get("name") or part.get("groupName")
    return _label(name) if isinstance(name, str) else ""


def _label(text: str) -> str:
    return _ODD.sub("-", text[:40].lower()).strip("-").removesuffix("groupspec")
