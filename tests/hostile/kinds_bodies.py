"""Kinds of hostile things in the rest of a pod: containers, names, metadata, status, claims."""

from __future__ import annotations

import random
from typing import Any

from tests.hostile.kinds import (
    DIGITS,
    Kind,
    Object,
    note,
    registering,
    resources,
)

_CONTROL = "".join(map(chr, range(1, 32))) + "\x7f\u2028\u202e\ufeff"

KINDS: dict[str, Kind] = {}
_kind = registering(KINDS)

# ---- containers


def _containers(body: Object, section: str, count: int, *, length: int = 0, **more: Any) -> None:  # noqa: ANN401 - JSON
    names = (f"c{number}".ljust(length, "x") for number in range(1, count + 1))
    body["spec"].setdefault(section, []).extend({"name": name, "image": "none", **more} for name in names)


@_kind("containers-60")
def _sixty(_dice: random.Random, body: Object) -> None:
    _containers(body, "containers", 60)


@_kind("containers-60-long")
def _sixty_long(dice: random.Random, body: Object) -> None:
    amounts = {"cpu": f"{dice.randint(1, 9)}m", "memory": "1Mi"}
    _containers(body, "containers", 60, length=63, resources={"requests": amounts, "limits": amounts})


@_kind("containers-600")
def _six_hundred(_dice: random.Random, body: Object) -> None:
    _containers(body, "containers", 600)


@_kind("containers-and-resources")
def _both(_dice: random.Random, body: Object) -> None:
    """Half a MiB that means something."""
    amounts = {f"{'.'.join(['r' * 60] * 4)}/{'x' * 60}{number:03}": "1" for number in range(12)}
    _containers(body, "containers", 60, length=63, resources={"limits": amounts})


@_kind("inits-and-sidecars-60")
def _inits(_dice: random.Random, body: Object) -> None:
    _containers(body, "initContainers", 60, length=40)
    _containers(body, "initContainers", 60, length=50, restartPolicy="Always")


@_kind("containers-same-name")
def _same(_dice: random.Random, body: Object) -> None:
    body["spec"]["containers"] *= 2


@_kind("container-name-odd")
def _odd_container(dice: random.Random, body: Object) -> None:
    body["spec"]["containers"][0]["name"] = dice.choice(("x" * 64, "../../..", "a b", "", "é", "A"))


@_kind("environment-large")
def _environment(_dice: random.Random, body: Object) -> None:
    """An object as large as etcd takes, in many small parts."""
    parts = [{"name": f"E{number}", "value": "v" * 20} for number in range(20_000)]
    body["spec"]["containers"][0]["env"] = parts


@_kind("arguments-large")
def _arguments(_dice: random.Random, body: Object) -> None:
    body["spec"]["containers"][0]["args"] = ["😀" * 300_000]


@_kind("volumes-5000")
def _volumes(_dice: random.Random, body: Object) -> None:
    body["spec"]["volumes"] = [{"name": f"v{number}", "emptyDir": {}} for number in range(5000)]
    body["spec"]["containers"][0]["volumeMounts"] = [
        {"name": f"v{number}", "mountPath": f"/v/{number}"} for number in range(5000)
    ]


@_kind("tolerations-10000")
def _tolerations(_dice: random.Random, body: Object) -> None:
    body["spec"]["tolerations"] = [{"key": f"k{number}", "operator": "Exists"} for number in range(10_000)]


# ---- the rest of metadata, spec and status


@_kind("name-253")
def _name_253(dice: random.Random, body: Object) -> None:
    body["metadata"]["name"] = (
        f"{body['metadata']['name']}." + ".".join(["n" * 58] * 3) + f".{dice.getrandbits(64):x}"
    )
    body["metadata"]["name"] = body["metadata"]["name"].ljust(253, "x")


@_kind("name-254")
def _name_254(_dice: random.Random, body: Object) -> None:
    body["metadata"]["name"] = f"{body['metadata']['name']}.".ljust(254, "x")


@_kind("name-odd")
def _name_odd(dice: random.Random, body: Object) -> None:
    body["metadata"]["name"] += dice.choice(("_", "\n", "é", "..x", "A", "-", "%2F"))


@_kind("labels-10000")
def _labels(_dice: random.Random, body: Object) -> None:
    body["metadata"]["labels"] = {f"l.io/{number}": "x" * 63 for number in range(10_000)}


@_kind("owners-5000")
def _owners(_dice: random.Random, body: Object) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x" * 100}
    body["metadata"]["ownerReferences"] = [
        {**owner, "uid": f"u{number}", "controller": number == 4999} for number in range(5000)
    ]


@_kind("owner-uid-large")
def _owner(_dice: random.Random, body: Object) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u" * 200_000, "controller": True}
    body["metadata"]["ownerReferences"] = [owner]


@_kind("finalizers-5000")
def _finalizers(_dice: random.Random, body: Object) -> None:
    body["metadata"]["finalizers"] = [f"x.io/{number}" for number in range(5000)]


@_kind("deadline")
def _deadline(dice: random.Random, body: Object) -> None:
    body["spec"]["activeDeadlineSeconds"] = dice.choice((1, -1, 2**31 - 1, 2**63))


@_kind("priority")
def _priority(dice: random.Random, body: Object) -> None:
    body["spec"] |= dice.choice((
        {"priorityClassName": "system-node-critical"}, {"priority": 2**31 - 1}, {"priority": -(2**40)},
        {"priorityClassName": "x" * 253},
    ))  # fmt: skip


@_kind("runtime-class")
def _runtime_class(_dice: random.Random, body: Object) -> None:
    body["spec"]["runtimeClassName"] = "x" * 253


@_kind("time-odd")
def _time(dice: random.Random, body: Object) -> None:
    body["metadata"]["creationTimestamp"] = dice.choice((
        "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:60+23:59", "x",
        f"2026-01-01T00:00:00.{DIGITS}Z",
    ))  # fmt: skip


@_kind("fields-written")
def _managed(_dice: random.Random, body: Object) -> None:
    """As a client leaves behind that applies under ever other names."""
    entry = {"operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1"}
    body["metadata"]["managedFields"] = [
        {**entry, "manager": f"m{number}", "fieldsV1": {"f:metadata": {"f:labels": {f"f:l{number}": {}}}}}
        for number in range(3000)
    ]


@_kind("fields-written-deep")
def _deep_fields(_dice: random.Random, body: Object) -> None:
    """Nested as deep as the API server follows: deeper than many a JSON library does."""
    entry = {"operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1"}
    body["metadata"]["managedFields"] = [{**entry, "manager": "m", "fieldsV1": "<<deep>>"}]


@_kind("status-claimed")
def _status(dice: random.Random, body: Object) -> None:
    """The API server leaves a status out of what is created; with pods/status it is written."""
    number = f"containerd://{dice.getrandbits(256):064x}"
    odd: list[Any] = [
        {"name": "c", "containerID": number, "allocatedResources": {"cpu": DIGITS}},
        7,
        {},
        {"name": {}},
    ]
    odd += [{"name": f"c{each}", "containerID": f"{number[:-4]}{each:04x}"} for each in range(5000)]
    conditions = [{"type": "numalign.io/Aligned", "status": "True", "reason": "Aligned", "message": "m" * 30_000}]
    body["status"] = {"phase": "Running", "containerStatuses": odd, "conditions": conditions}


@_kind("status-shapes")
def _shapes(dice: random.Random, body: Object) -> None:
    body["status"] = dice.choice((
        {"containerStatuses": {}, "conditions": 3, "qosClass": [], "phase": {}}, {"qosClass": "Best"},
        {"conditions": [None, {"type": None}], "containerStatuses": [None]}, {"allocatedResources": [1]},
    ))  # fmt: skip


@_kind("exclusive-beside-a-sidecar")
def _beside_a_sidecar(dice: random.Random, body: Object) -> None:
    """CPUs that a Burstable pod really gets, where its annotation is read, often with the reserved ones beside."""
    note(body, "exclusive", "auto")
    note(body, "mixed", dice.choice(("c", "c", "c,asks-for-less", "asks-for-less", "")))
    resources(body, cpu=str(dice.randint(1, 2)), memory="8Mi")
    side = {"requests": {"cpu": "10m"}, "limits": {"cpu": "500m"}}
    body["spec"]["containers"].append({"name": "asks-for-less", "image": "none", "resources": side})


# ---- claims of DRA


def _claiming(body: Object, *claims: Object) -> None:
    """A pod with claims, which its first container uses."""
    body["spec"]["resourceClaims"] = [*body["spec"].get("resourceClaims", []), *claims]
    used = body["spec"]["containers"][0].setdefault("resources", {}).setdefault("claims", [])
    used += [{"name": each["name"]} for each in claims if "name" in each]


@_kind("dra-claims-1000")
def _many_claims(dice: random.Random, body: Object) -> None:
    mark = dice.randrange(1 << 20)
    _claiming(body, *({"name": f"m{each}", "resourceClaimName": f"{mark:x}-{each}"} for each in range(1000)))


@_kind("dra-claim")
def _one_claim(dice: random.Random, body: Object) -> None:
    """What a tenant may have: a claim whose devices he chose."""
    _claiming(body, {"name": "one", "resourceClaimName": f"c{dice.randrange(1 << 20):x}"})


@_kind("dra-claim-odd")
def _odd_claim(dice: random.Random, body: Object) -> None:
    name: Any = dice.choice(
        ("../../../../api/v1/secrets", "a?watch=true", "x" * 5000, "%2e%2e", "", {}, 7, "\n", "é")
    )
    _claiming(body, {"name": "odd", "resourceClaimName": name}, {"name": "none"}, {"resourceClaimName": "nameless"})


@_kind("dra-claim-requests")
def _many_requests(dice: random.Random, body: Object) -> None:
    """A container that names more requests of a claim than a claim can have."""
    body["spec"]["resourceClaims"] = [{"name": "one", "resourceClaimName": f"c{dice.randrange(1 << 20):x}"}]
    used = [{"name": "one", "request": f"r{each}".ljust(63, "x")} for each in range(2000)]
    body["spec"]["containers"][0]["resources"] = {"claims": used}


@_kind("dra-status")
def _claims_status(dice: random.Random, body: Object) -> None:
    """Made from templates, or the scheduler's own: with pods/status a name may be written that is no claim's."""
    _claiming(body, {"name": "made", "resourceClaimTemplateName": "t"})
    names = ["../../secrets", "x" * 253, DIGITS, f"c{dice.randrange(1 << 20):x}"]
    mapped = [
        {"containerName": "c", "resourceName": "example.com/x", "requestName": f"r{each}"} for each in range(2000)
    ]
    body["status"] = {
        "resourceClaimStatuses": [{"name": "made", "resourceClaimName": each} for each in names * 300],
        "extendedResourceClaimStatus": {"resourceClaimName": dice.choice(names), "requestMappings": mapped},
    }
