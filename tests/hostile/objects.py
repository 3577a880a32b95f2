"""Hostile pods: what a tenant may write at the limits of the API server, seeded, and named for what is hostile.

    KINDS["annotations-unknown-10000"](random.Random(1), body)    one thing that is hostile, put into a pod
    alone(seed)                                                   a pod per kind, for the table of answers
    whole(seed, 110)                                              pods with several kinds at once

The same seed makes the same pods. Which kinds a real kube-apiserver takes is kept in answers.json (`asking`).
"""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent.model.notes import LISTS, OURS, PREFIX, WORDS

Object = dict[str, Any]
Kind = Callable[[random.Random, Object], None]

MOST_ANNOTATIONS = 262_144
"""Bytes of all keys and values of a pod's annotations that the API server takes."""
LARGEST = 1_400_000
"""Bytes of a whole object: etcd takes 1.5 MiB."""
HUGE = 8 << 20
"""Bytes of an object that no server can have, and twice of what the agent parses."""
DIGITS = "9" * 5000
SPACE = "tenant"
_CONTROL = "".join(map(chr, range(1, 32))) + "\x7f\u2028\u202e\ufeff"
_IDS = uuid.UUID("0f6f8a3e-6a2c-5c5e-8f3e-686f7374696c")

KINDS: dict[str, Kind] = {}


DEEP = 2000
LITERALS = {"<<deep>>": '{"f:x":' * DEEP + "{}" + "}" * DEEP}
"""Texts that stand in a body for JSON that Python's own library can neither read nor write."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """One pod, and what is hostile in it."""

    kinds: tuple[str, ...]
    body: Object

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.body["metadata"]["name"])

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.body['metadata']['namespace']}/{self.name}"

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return str(self.body["metadata"]["uid"])


def alone(seed: int) -> list[Hostile]:
    """A pod for each kind."""
    return [make(seed, number, (kind,)) for number, kind in enumerate(KINDS)]


def whole(seed: int, count: int, among: tuple[str, ...] = (), *, most: int = 0) -> list[Hostile]:
    """Pods with up to four kinds each; the first ones have one kind each, as far as they go.

    Args:
        seed: of all that is random in them.
        count: so many.
        among: of these kinds only; of all where empty.
        most: bytes of an object; of kinds that together make it larger the later ones are left out. 0: any number.
    """
    kinds = list(among or KINDS)
    dice = random.Random(seed)
    dice.shuffle(kinds)
    found = []
    for number in range(count):
        chosen = [kinds[number % len(kinds)]]
        chosen += dice.sample(kinds, dice.randint(0, 3))
        found.append(make(seed, number, tuple(dict.fromkeys(chosen)), most=most))
    return found


def make(seed: int, number: int, kinds: tuple[str, ...], space: str = SPACE, *, most: int = 0) -> Hostile:
    """One pod; `most` as for `whole`."""
    dice = random.Random(f"{seed} {number} {' '.join(kinds)}")
    body = plain(f"evil-{number}", space, uid=str(uuid.uuid5(_IDS, f"{seed} {number}")))
    done = []
    for kind in kinds:
        before = copy.deepcopy(body) if most else body
        KINDS[kind](dice, body)
        if most and _stored(body) > most:
            body = before
        else:
            done.append(kind)
    return Hostile(tuple(done), body)


def _stored(body: Object) -> int:
    """About the bytes that a server keeps of it: an escaped character is one."""
    text = written(body)
    return len(text) - 5 * text.count(b"\\u00")


def plain(name: str, space: str = SPACE, uid: str = "") -> Object:
    """A BestEffort pod with nothing hostile in it."""
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": space, "uid": uid or str(uuid.uuid5(_IDS, name)), "annotations": {}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "none"}]},
    }  # fmt: skip


def stripped(pod: Hostile) -> Hostile:
    """The same pod without its annotations: what its requests alone do."""
    body: Object = json.loads(json.dumps(pod.body))
    body["metadata"]["annotations"] = {}
    return Hostile(pod.kinds, body)


def _kind(name: str) -> Callable[[Kind], Kind]:
    def put(kind: Kind) -> Kind:
        KINDS[name] = kind
        return kind

    return put


# ---- annotations


def _room(body: Object) -> int:
    notes = body["metadata"]["annotations"]
    return MOST_ANNOTATIONS - sum(len(_bytes(key)) + len(_bytes(value)) for key, value in notes.items())


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _cut(text: str, size: int) -> str:
    return text if len(text) * 4 <= size else _bytes(text)[:size].decode("utf-8", "ignore")


def _note(body: Object, name: str, value: str) -> None:
    """One of ours, as long as there is room for it."""
    size = _room(body) - len(PREFIX + name) - 1
    body["metadata"]["annotations"][f"{PREFIX}{name}"] = _cut(value, max(0, size))


def _known(dice: random.Random) -> str:
    return dice.choice(sorted(WORDS | LISTS)).removeprefix(PREFIX)


def _many(body: Object, notes: Iterator[tuple[str, str]]) -> None:
    """As many as there is room for."""
    room = _room(body)
    for name, value in notes:
        room -= len(name) + len(value)
        if room < 0:
            return
        body["metadata"]["annotations"][name] = value


@_kind("annotations-unknown-10000")
def _unknown(dice: random.Random, body: Object) -> None:
    mark = dice.randrange(1 << 20)
    _many(body, ((f"{PREFIX}{mark:x}-{number:x}", "") for number in range(10_000)))


@_kind("annotations-foreign-10000")
def _foreign(dice: random.Random, body: Object) -> None:
    _many(body, ((f"x.io/{number:x}", str(dice.randrange(10**9))) for number in range(10_000)))


@_kind("annotations-one-too-large")
def _too_large(_dice: random.Random, body: Object) -> None:
    body["metadata"]["annotations"] = {f"{PREFIX}policy": "x" * (MOST_ANNOTATIONS + 1)}


@_kind("annotation-name-of-316")
def _long_name(_dice: random.Random, body: Object) -> None:
    host = ".".join(["n" * 61] * 3 + ["numalign.io"])
    body["metadata"]["annotations"][f"{host}/{'x' * 63}"] = "x"
    body["metadata"]["annotations"][f"{PREFIX}{'x' * 63}"] = "x"


@_kind("annotation-name-odd")
def _odd_name(_dice: random.Random, body: Object) -> None:
    body["metadata"]["annotations"] |= {PREFIX: "999999999", f"{PREFIX}a/b": "", "numalign.io": "", f"{PREFIX}é": ""}


def _values(name: str, value: Callable[[random.Random], str]) -> None:
    """Two kinds: in an annotation of ours that dice chooses, and in every one."""

    def one(dice: random.Random, body: Object) -> None:
        _note(body, _known(dice), value(dice))

    def every(dice: random.Random, body: Object) -> None:
        for key in sorted(WORDS | LISTS):
            _note(body, key.removeprefix(PREFIX), value(dice)[: MOST_ANNOTATIONS // 16])

    KINDS[f"value-{name}"], KINDS[f"values-{name}"] = one, every


_values("long", lambda _dice: "x" * MOST_ANNOTATIONS)
_values("control", lambda _dice: _CONTROL * (MOST_ANNOTATIONS // 40))
_values("nul", lambda _dice: "\0" * 10_000)
_values("quotes", lambda dice: dice.choice("\"'\\<&{[") * 100_000)
_values("emoji", lambda dice: dice.choice("😀𝟘é\u0301\u202e\uffff") * 20_000)
_values("digits", lambda _dice: DIGITS)
_values("digits-other", lambda dice: dice.choice("٣３²Ⅷ") * 5000)
_values("words", lambda dice: ",".join(dice.choices(("numa", "memory", "true", "0", "restricted"), k=20_000)))
_values("lines", lambda _dice: "\r\n" * 50_000)
_values("empty", lambda _dice: "")
_values("half-a-letter", lambda _dice: "\ud800")


@_kind("devices-5000-digits")
def _device_digits(_dice: random.Random, body: Object) -> None:
    _note(body, "devices", f"x={DIGITS}")


@_kind("devices-20000")
def _device_list(_dice: random.Random, body: Object) -> None:
    _note(body, "devices", ",".join(f"d{number:x}=1" for number in range(20_000)))


@_kind("cpu-options-20000")
def _options(_dice: random.Random, body: Object) -> None:
    _note(body, "cpu-options", ",".join(f"full-pcpus-only={number % 2 == 0}" for number in range(20_000)))


@_kind("wishes")
def _wishes(dice: random.Random, body: Object) -> None:
    """All of them valid: what a tenant may ask for."""
    _note(body, "policy", dice.choice(("none", "best-effort", "restricted", "single-numa-node")))
    _note(body, "scope", dice.choice(("pod", "container")))
    _note(body, "on-misalignment", dice.choice(("fail", "wait", "evict", "run")))
    _note(body, "align", dice.choice(("numa", "numa,memory", "memory")))
    _note(body, "move-memory", "true")
    _note(body, "devices", "nvme=1")


@_kind("assignment-deep")
def _deep(dice: random.Random, body: Object) -> None:
    _note(body, "assignment", dice.choice(("[", '{"a":')) * 30_000)


@_kind("assignment-numbers")
def _numbers(_dice: random.Random, body: Object) -> None:
    _note(body, "assignment", f'{{"containers":{{"c":{{"devices":{{"x":[{DIGITS},NaN,-Infinity,1e999]}}}}}}}}')


@_kind("assignment-claims")
def _claims(_dice: random.Random, body: Object) -> None:
    held = {"cpus": "1-15", "devices": {"nvme": ["0000:01:00.0"] * 2000}, "mems": "0-1", "aligned": True}
    word = {"policy": "static", "containers": {"c": held}, "instead": "run", "refused": "x"}
    _note(body, "assignment", json.dumps(word))
    for name in sorted(OURS - {f"{PREFIX}assignment"}):
        _note(body, name.removeprefix(PREFIX), "1-15")


@_kind("mirror-claimed")
def _mirror(dice: random.Random, body: Object) -> None:
    digest = f"{dice.getrandbits(128):032x}"
    marks = {"config.hash": digest, "config.mirror": digest, "config.source": "file", "config.seen": "x"}
    body["metadata"]["annotations"] |= {f"kubernetes.io/{key}": value for key, value in marks.items()}


# ---- quantities and resources


def _resources(body: Object, **amounts: str) -> None:
    for each in body["spec"]["containers"]:
        each["resources"] = {"requests": dict(amounts), "limits": dict(amounts)}


_QUANTITIES = {
    "1e300": "1e300", "1e-300": "1e-300", "minus-zero": "-0", "minus": "-1", "plus": "+2", "tiny": "1n",
    "fraction": "0." + "0" * 300 + "1", "binary": "9Ei", "int64": "9223372036854775807",
    "over": "9223372036854775808",
    "digits": DIGITS, "digits-binary": f"{DIGITS}Ki", "hex": "0x10", "spaces": " 2 ", "wide": "２", "dot": ".5",
    "dots": "2.", "zeros": "0" * 4999 + "2", "exponent": "1E18", "exponent-digits": f"1e{DIGITS}", "nan": "NaN",
    "empty": "", "under": "1_0",
}  # fmt: skip


def _quantity(name: str, text: str) -> None:
    def put(dice: random.Random, body: Object) -> None:
        resource = dice.choice(("cpu", "memory", "example.com/x", "hugepages-2Mi", "ephemeral-storage"))
        amounts = {"cpu": "1m", "memory": "1Mi", resource: text}
        _resources(body, **amounts)

    KINDS[f"quantity-{name}"] = put


for _name, _text in _QUANTITIES.items():
    _quantity(_name, _text)


@_kind("quantity-not-text")
def _not_text(dice: random.Random, body: Object) -> None:
    _resources(body, cpu=dice.choice((1e300, -0.0, 10**400, True, [], {})))  # type: ignore[arg-type] # on purpose


@_kind("resources-60")
def _many_resources(_dice: random.Random, body: Object) -> None:
    host = ".".join(["r" * 60] * 4)
    _resources(body, cpu="1m", memory="1Mi", **{f"{host}/{'x' * 58}{number:03}": "1" for number in range(60)})


@_kind("resources-2000")
def _more_resources(_dice: random.Random, body: Object) -> None:
    _resources(body, cpu="1m", memory="1Mi", **{f"example.com/x{number}": "1" for number in range(2000)})


@_kind("hugepages-odd")
def _odd_pages(dice: random.Random, body: Object) -> None:
    size = dice.choice(("0", "-2Mi", "1e300", DIGITS[:200], "3", "２Mi"))
    _resources(body, **{"cpu": "1m", "memory": "1Mi", f"hugepages-{size}": "0"})


@_kind("overhead")
def _overhead(dice: random.Random, body: Object) -> None:
    body["spec"]["overhead"] = {"cpu": dice.choice(("-1", "1e300", DIGITS)), "memory": "1Mi"}


@_kind("pod-level")
def _pod_level(dice: random.Random, body: Object) -> None:
    body["spec"]["resources"] = {"limits": {"cpu": dice.choice(("1e300", "1n", DIGITS)), "memory": "1Mi"}}


@_kind("exclusive")
def _exclusive(dice: random.Random, body: Object) -> None:
    """CPUs that it really gets."""
    _resources(body, cpu=str(dice.randint(1, 2)), memory="8Mi")


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


def written(body: Object) -> bytes:
    """The object in JSON."""
    found = json.dumps(body, ensure_ascii=False)
    for mark, literal in LITERALS.items():
        found = found.replace(f'"{mark}"', literal)
    return _bytes(found)


def distinct(pods: list[Hostile]) -> Iterator[Hostile]:
    """Those of names that nobody else has."""
    seen = set[str]()
    for pod in pods:
        if pod.key not in seen:
            seen.add(pod.key)
            yield pod


@_kind("exclusive-beside-a-sidecar")
def _beside_a_sidecar(dice: random.Random, body: Object) -> None:
    """CPUs that a Burstable pod really gets, where its annotation is read, often with the reserved ones beside."""
    _note(body, "exclusive", "auto")
    _note(body, "mixed", dice.choice(("c", "c", "c,asks-for-less", "asks-for-less", "")))
    _resources(body, cpu=str(dice.randint(1, 2)), memory="8Mi")
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
