"""From an object of a manifest or a dump to the pods that it asks for, or why it asks for none.

Called by `agent.host.workloads` for `numalign simulate` and `explain --manifest`. Nothing in the body is trusted. A
fault in one of Kubernetes' own workloads is a BadPodError that names the field's path; one in an operator's kind is a
reason why it asks for none, since nothing there is known to be wrong.

Which kind an object is follows from its group and its kind: Volcano's Job is no Job of Kubernetes. Objects without
apiVersion, as people write examples, are Kubernetes' own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.errors import BadPodError
from agent.forecast.idle_objects import idle
from agent.forecast.placing import OF_A_DAEMON, placing_of
from agent.forecast.pod_templates import MOST_REPLICAS, PodTemplate, at_once, count_of, templates_in
from agent.forecast.workload import WorkloadItem, named
from agent.model.allocated import allocated
from agent.model.fields import Field, mapping_of, plain
from agent.model.object_ids import MOST_OWNERS, ObjectId, owners_of, word
from agent.model.pod import Pod
from agent.model.podspec import pod_from

SUCCEEDED = "it has run to its end (phase Succeeded)"
_ENDED = {"Succeeded": SUCCEEDED, "Failed": "it has failed, and holds nothing (phase Failed)"}
"""Phases of pods that hold nothing any more."""
DRA = ("ResourceClaim", "ResourceSlice")
"""Kinds that say where the devices of pods are."""
REPLICATED = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"})
EVERY_NODE = frozenset({"DaemonSet", "BroadcastJob"})

_APPS = ("apps", "extensions")
_OWN: Mapping[str, tuple[str, ...]] = {
    "Pod": ("",), "ReplicationController": ("",), "Deployment": _APPS, "ReplicaSet": _APPS, "DaemonSet": _APPS,
    "StatefulSet": ("apps",), "Job": ("batch",), "CronJob": ("batch",),
}  # fmt: skip
"""Kubernetes' own workloads, and the groups in which they are."""
_OWN_GROUPS = frozenset({"", "apps", "autoscaling", "batch", "extensions", "policy"})
_NO_PODS = frozenset({
    "ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition", "DeviceClass", "EndpointSlice",
    "Endpoints", "HorizontalPodAutoscaler", "Ingress", "LimitRange", "NetworkPolicy", "Node", "PersistentVolume",
    "PersistentVolumeClaim", "PodDisruptionBudget", "PriorityClass", "ResourceClaimTemplate", "ResourceQuota", "Role",
    "RoleBinding", "Secret", "Service", "ServiceAccount", "StorageClass",
})  # fmt: skip
"""Kubernetes' kinds, where the apiVersion is missing; an operator's kind may well make pods."""
_VIRTUAL = "KubeVirt works out its pod: give the virt-launcher pod of one that runs (kubectl get pod NAME -o yaml)"
_SPARK = "the Spark operator works out its pods: give those of one that runs (kubectl get pods -o yaml)"
_ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("kubevirt.io", "VirtualMachine"): _VIRTUAL,
    ("kubevirt.io", "VirtualMachineInstance"): _VIRTUAL,
    ("kubevirt.io", "VirtualMachineInstanceReplicaSet"): _VIRTUAL,
    ("pool.kubevirt.io", "VirtualMachinePool"): _VIRTUAL,
    ("sparkoperator.k8s.io", "SparkApplication"): _SPARK,
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): _SPARK,
    ("kueue.x-k8s.io", "Workload"): "its pods are those of the job that it queues",
    ("kustomize.config.k8s.io", "Kustomization"): "render it first (kubectl kustomize FOLDER), and give that",
    ("template.openshift.io", "Template"): "render it first (oc process -f FILE), and give that",
}
"""Kinds whose pods follow from no template in them: why they are left out, and what to do."""
_PATTERNS = ("Template", "Runtime", "ServiceConfig")
"""Ends of the names of kinds that are patterns: others make pods of them."""
_UNKNOWN = "no pod template was found in it; where it makes pods, write them as a Deployment"
LATER = "its Jobs come later; without metadata.uid one run counts"
_NO_REPLICAS = "it asks for no pods (replicas: 0)"


@dataclass(frozen=True, slots=True)
class Workload:
    """What an object asks for.

    Attributes:
        id: of the object.
        group: of its apiVersion, "" for the core group and where it is not said.
        items: its pods; a bare pod is one.
        why_none: why it has no items, or why its only one counts no more (a pod that ended); "" else.
        found: where its pods were read, in words, for a kind that only its operator knows; "" else.
        owners: of the object, its controller first.
    """

    id: ObjectId
    group: str = ""
    items: tuple[WorkloadItem, ...] = ()
    why_none: str = ""
    found: str = ""
    owners: tuple[ObjectId, ...] = ()

    @property
    def own(self) -> bool:
        """Whether it is one of Kubernetes' own workloads."""
        return self.id.kind in _OWN and (not self.group or self.group in _OWN[self.id.kind])

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod itself."""
        return self.own and self.id.kind == "Pod"


def workload_from(body: Mapping[str, object]) -> Workload:
    """What an object asks for.

    Args:
        body: the parsed YAML or JSON, untrusted; no List.

    Raises:
        BadPodError: the kind is missing, a field of a workload of Kubernetes is malformed, or there are more replicas
            than MOST_REPLICAS.
    """
    root = Field(body, "", BadPodError)
    kind = _kind(root)
    group = group_of(body)
    metadata = mapping_of(body.get("metadata"))
    space, name = word(metadata.get("namespace")) or "default", word(metadata.get("name"))
    found = Workload(
        ObjectId(kind, f"{space}/{name}", word(metadata.get("uid"))), group, owners=owners_of(metadata, space)
    )
    if found.is_pod:
        return _bare(found, root, body)
    if found.own:
        why = idle(body)
        items = () if why else _own_items(root, kind)
        later = kind == "CronJob" and bool(found.id.uid) and not why
        why = why or (LATER if later else "" if items else _NO_REPLICAS)
        return replace(found, items=() if later else items, why_none=why)
    return _others(found, root)


def group_of(body: Mapping[str, object]) -> str:
    """The group of an object's apiVersion; "" for the core group, and where there is none."""
    version = body.get("apiVersion")
    return version.rpartition("/")[0][:253] if isinstance(version, str) else ""


def _kind(root: Field) -> str:
    kind = root.get("kind")
    if kind:
        return plain(kind.text())
    if isinstance(mapping_of(root.mapping().get("spec")).get("containers"), list):
        return "Pod"  # as a client writes a pod whose type it knows, and as the items of a PodList are
    raise kind.wrong("is missing; write kind: Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet or Job")


# ---- Kubernetes' own


def _own_items(root: Field, kind: str) -> tuple[WorkloadItem, ...]:
    spec = root.get("spec")
    if kind == "CronJob":  # one run
        spec = spec.get("jobTemplate").get("spec")
        count = at_once(spec)
    elif kind == "Job":
        status = mapping_of(root.mapping().get("status"))
        succeeded, active = _number(status.get("succeeded")), _number(status.get("active"))
        count = at_once(spec, succeeded)
        if succeeded and not spec.get("completions"):  # its queue is empty: the others end, and none is made again
            count = min(count, active)
    else:
        count = count_of(spec.get("replicas"), 1) if kind in REPLICATED else 1
    template = spec.get("template")
    if not template:
        raise template.wrong("is missing; a workload describes its pods there")
    made = PodTemplate(template.get("metadata"), template.get("spec"), count)
    return tuple(_made(root, kind, [made]))


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _made(root: Field, kind: str, templates: list[PodTemplate]) -> list[WorkloadItem]:
    """The pods of an object's templates."""
    found = list[WorkloadItem]()
    numbers = Counter[str]()
    for template in templates:
        pod = _templated(root, template)
        placing = placing_of(template.spec)
        claims = bool(template.spec.get("resourceClaims"))
        item = WorkloadItem(pod, f"{kind} {pod.key}", placing=placing, claims=claims)
        if kind in EVERY_NODE:
            tolerations = (*placing.tolerations, *OF_A_DAEMON)
            found.append(replace(item, every_node=True, placing=replace(placing, tolerations=tolerations)))
            continue
        base = f"{pod.name}-{template.role}" if len(templates) > 1 and template.role else pod.name
        for _ in range(template.count):
            found.append(replace(item, pod=named(pod, f"{base}-{numbers[base]}")))
            numbers[base] += 1
    return found


def _templated(root: Field, template: PodTemplate) -> Pod:
    """The pod of a template, named as its owner."""
    metadata = root.get("metadata")
    own = {"name": metadata.get("name").value, "namespace": metadata.get("namespace").value}
    body = {
        "kind": "Pod",
        "metadata": {
            **{key: value for key, value in own.items() if value is not None},
            "annotations": template.metadata.get("annotations").value,
        },
        "spec": template.spec.value,
    }
    try:
        return pod_from(body)
    except BadPodError as error:
        place, why = error.field, str(error).removeprefix(f"{error.field}: ")
        if place.startswith("spec"):
            place = f"{template.spec.path}{place.removeprefix('spec')}"
        elif not place.startswith(("metadata.name", "metadata.namespace")):
            place = f"{template.metadata.path}{place.removeprefix('metadata')}"
        raise BadPodError(place, why) from None


def _bare(found: Workload, root: Field, body: Mapping[str, object]) -> Workload:
    pod = allocated(pod_from(body), body)
    owners = list(root.get("metadata").get("ownerReferences").items(MOST_OWNERS))
    owner = f"{_ownerword(owners[0], 'kind')} {pod.namespace}/{_ownerword(owners[0], 'name')}" if owners else ""
    node = root.get("spec").get("nodeName")
    status = mapping_of(body.get("status"))
    why = ended(body)
    claims = bool(root.get("spec").get("resourceClaims") or status.get("extendedResourceClaimStatus"))
    item = WorkloadItem(
        pod, owner, node.text() if node else "", ended=bool(why),
        placing=placing_of(root.get("spec")), claims=claims,
    )  # fmt: skip
    return replace(found, items=(item,), why_none=why)


def ended(body: Mapping[str, object]) -> str:
    """Why a pod of a dump holds nothing any more; "" of one that may run."""
    phase = mapping_of(body.get("status")).get("phase")
    return _ENDED.get(phase, "") if isinstance(phase, str) else ""


def _ownerword(owner: Field, name: str) -> str:
    word = owner.get(name)
    return word.text() if word else "?"


# ---- other kinds


def _others(found: Workload, root: Field) -> Workload:
    """An object whose kind only its operator knows."""
    body, kind = root.mapping(), found.id.kind
    known = "apiVersion" in body
    if why := _ELSEWHERE.get((found.group, kind)) or (
        "it makes no pods" if (_kubernetes(found.group) if known else kind in _NO_PODS) else ""
    ):
        return replace(found, why_none=idle(body) if why in (_VIRTUAL, _SPARK) and idle(body) else why)
    if kind.endswith(_PATTERNS):
        return replace(found, why_none="it is a pattern: what is made of it counts")
    try:
        templates = templates_in(root.get("spec"))
        if not templates:
            return replace(found, why_none=idle(body) or _UNKNOWN)
        if why := idle(body):
            return replace(found, why_none=why)
        if sum(each.count for each in templates) > MOST_REPLICAS:
            raise root.get("spec").wrong(f"asks for more than {MOST_REPLICAS} pods")
        items = _made(root, kind, templates)
    except BadPodError as error:
        return replace(found, why_none=str(error))
    places = ", ".join(f"{each.count} by {each.spec.path.removesuffix('.spec')}" for each in templates[:4])
    more = f" and {len(templates) - 4} more" if len(templates) > 4 else ""  # noqa: PLR2004 - as many are shown
    return replace(found, items=tuple(items), why_none="" if items else _NO_REPLICAS, found=f"{places}{more}")


def _kubernetes(group: str) -> bool:
    """Whether a group is of Kubernetes itself; the workloads in it are all known."""
    return group in _OWN_GROUPS or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"))
