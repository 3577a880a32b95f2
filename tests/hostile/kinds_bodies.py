"""Kinds of hostile things in the rest of a pod: containers, names, metadata, status, claims."""

from __future__ import annotations

import random
from typing import Any

from tests.hostile.kinds import DIGITS, Kind, Object, note, one_of, put, resources

# ---- containers


def _containers(section: str, count: int, *, length: int = 0, **more: Any) -> Kind:  # noqa: ANN401 - JSON
    def kind(_dice: random.Random, body: Object) -> None:
        names = (f"c{number}".ljust(length, "x") for number in range(1, count + 1))
        body["spec"].setdefault(section, []).extend({"name": name, "image": "none", **more} for name in names)

    return kind


def _sixty_long(dice: random.Random, body: Object) -> None:
    amounts = {"cpu": f"{dice.randint(1, 9)}m", "memory": "1Mi"}
    _containers("containers", 60, length=63, resources={"requests": amounts, "limits": amounts})(dice, body)


def _inits(dice: random.Random, body: Object) -> None:
    _containers("initContainers", 60, length=40)(dice, body)
    _containers("initContainers", 60, length=50, restartPolicy="Always")(dice, body)


def _volumes(_dice: random.Random, body: Object) -> None:
    names = [f"v{number}" for number in range(5000)]
    body["spec"]["volumes"] = [{"name": name, "emptyDir": {}} for name in names]
    body["spec"]["containers"][0]["volumeMounts"] = [{"name": name, "mountPath": f"/v/{name[1:]}"} for name in names]


# ---- the rest of metadata, spec and status


def _name_253(dice: random.Random, body: Object) -> None:
    name = f"{body['metadata']['name']}." + ".".join(["n" * 58] * 3) + f".{dice.getrandbits(64):x}"
    body["metadata"]["name"] = name.ljust(253, "x")


def _written(manager: str, fields: object) -> Object:
    """An entry of managedFields."""
    entry = {"operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1"}
    return {**entry, "manager": manager, "fieldsV1": fields}


def _status(dice: random.Random) -> Object:
    """The API server leaves a status out of what is created; with pods/status it is written."""
    number = f"containerd://{dice.getrandbits(256):064x}"
    odd: list[Any] = [
        {"name": "c", "containerID": number, "allocatedResources": {"cpu": DIGITS}}, 7, {}, {"name": {}},
    ]  # fmt: skip
    odd += [{"name": f"c{each}", "containerID": f"{number[:-4]}{each:04x}"} for each in range(5000)]
    conditions = [{"type": "numalign.io/Aligned", "status": "True", "reason": "Aligned", "message": "m" * 30_000}]
    return {"phase": "Running", "containerStatuses": odd, "conditions": conditions}


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


def _many_claims(dice: random.Random, body: Object) -> None:
    mark = dice.randrange(1 << 20)
    _claiming(body, *({"name": f"m{each}", "resourceClaimName": f"{mark:x}-{each}"} for each in range(1000)))


def _one_claim(dice: random.Random) -> Object:
    """What a tenant may have: a claim whose devices he chose."""
    return {"name": "one", "resourceClaimName": f"c{dice.randrange(1 << 20):x}"}


def _odd_claim(dice: random.Random, body: Object) -> None:
    name: Any = dice.choice(
        ("../../../../api/v1/secrets", "a?watch=true", "x" * 5000, "%2e%2e", "", {}, 7, "\n", "é")
    )
    _claiming(body, {"name": "odd", "resourceClaimName": name}, {"name": "none"}, {"resourceClaimName": "nameless"})


def _many_requests(dice: random.Random, body: Object) -> None:
    """A container that names more requests of a claim than a claim can have."""
    body["spec"]["resourceClaims"] = [_one_claim(dice)]
    used = [{"name": "one", "request": f"r{each}".ljust(63, "x")} for each in range(2000)]
    body["spec"]["containers"][0]["resources"] = {"claims": used}


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


_OWNER = {"apiVersion": "v1", "kind": "Pod"}
KINDS: dict[str, Kind] = {
    "containers-60": _containers("containers", 60),
    "containers-60-long": _sixty_long,
    "containers-600": _containers("containers", 600),
    # Half a MiB that means something.
    "containers-and-resources": _containers("containers", 60, length=63, resources={
        "limits": {f"{'.'.join(['r' * 60] * 4)}/{'x' * 60}{number:03}": "1" for number in range(12)}
    }),
    "inits-and-sidecars-60": _inits,
    "containers-same-name": lambda _dice, body: body["spec"]["containers"].extend([*body["spec"]["containers"]]),
    "container-name-odd": put("container", "name", one_of("x" * 64, "../../..", "a b", "", "é", "A")),
    # An object as large as etcd takes, in many small parts.
    "environment-large": put(
        "container", "env", lambda _dice: [{"name": f"E{number}", "value": "v" * 20} for number in range(20_000)]
    ),
    "arguments-large": put("container", "args", lambda _dice: ["😀" * 300_000]),
    "volumes-5000": _volumes,
    "tolerations-10000": put(
        "spec", "tolerations", lambda _dice: [{"key": f"k{number}", "operator": "Exists"} for number in range(10_000)]
    ),
    "name-253": _name_253,
    "name-254": lambda _dice, body: body["metadata"].update(name=f"{body['metadata']['name']}.".ljust(254, "x")),
    "name-odd": lambda dice, body: body["metadata"].update(
        name=body["metadata"]["name"] + dice.choice(("_", "\n", "é", "..x", "A", "-", "%2F"))
    ),
    "labels-10000": put("metadata", "labels", lambda _dice: {f"l.io/{number}": "x" * 63 for number in range(10_000)}),
    "owners-5000": put("metadata", "ownerReferences", lambda _dice: [
        {**_OWNER, "name": "x" * 100, "uid": f"u{number}", "controller": number == 4999} for number in range(5000)
    ]),
    "owner-uid-large": put("metadata", "ownerReferences", lambda _dice: [
        {**_OWNER, "name": "x", "uid": "u" * 200_000, "controller": True}
    ]),
    "finalizers-5000": put("metadata", "finalizers", lambda _dice: [f"x.io/{number}" for number in range(5000)]),
    "deadline": put("spec", "activeDeadlineSeconds", one_of(1, -1, 2**31 - 1, 2**63)),
    "priority": lambda dice, body: body["spec"].update(dice.choice((
        {"priorityClassName": "system-node-critical"}, {"priority": 2**31 - 1}, {"priority": -(2**40)},
        {"priorityClassName": "x" * 253},
    ))),
    "runtime-class": put("spec", "runtimeClassName", lambda _dice: "x" * 253),
    "time-odd": put("metadata", "creationTimestamp", one_of(
        "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9999-12-31T23:59:60+23:59", "x",
        f"2026-01-01T00:00:00.{DIGITS}Z",
    )),
    # As a client leaves behind that applies under ever other names.
    "fields-written": put("metadata", "managedFields", lambda _dice: [
        _written(f"m{number}", {"f:metadata": {"f:labels": {f"f:l{number}": {}}}}) for number in range(3000)
    ]),
    # Nested as deep as the API server follows: deeper than many a JSON library does.
    "fields-written-deep": put("metadata", "managedFields", lambda _dice: [_written("m", "<<deep>>")]),
    "status-claimed": put("pod", "status", _status),
    "status-shapes": put("pod", "status", lambda dice: dice.choice((
        {"containerStatuses": {}, "conditions": 3, "qosClass": [], "phase": {}}, {"qosClass": "Best"},
        {"conditions": [None, {"type": None}], "containerStatuses": [None]}, {"allocatedResources": [1]},
    ))),
    "exclusive-beside-a-sidecar": _beside_a_sidecar,
    "dra-claims-1000": _many_claims,
    "dra-claim": lambda dice, body: _claiming(body, _one_claim(dice)),
    "dra-claim-odd": _odd_claim,
    "dra-claim-requests": _many_requests,
    "dra-status": _claims_status,
}  # fmt: skip
