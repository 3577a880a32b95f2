"""Hostile pods: what a tenant may write at the limits of the API server, seeded, and named for what is hostile.

    KINDS["annotations-unknown-10000"](random.Random(1), body)    one thing that is hostile, put into a pod
    alone(seed)                                                   a pod per kind, for the table of answers
    whole(seed, 110)                                              pods with several kinds at once

The kinds are those of `kinds_annotations` and `kinds_bodies`. The same seed makes the same pods. Which kinds a real
kube-apiserver takes is kept in answers.json (`asking`).
"""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from tests.hostile import kinds_annotations, kinds_bodies
from tests.hostile.kinds import LITERALS, Kind, Object, utf8

LARGEST = 1_400_000
"""Bytes of a whole object: etcd takes 1.5 MiB."""
HUGE = 8 << 20
"""Bytes of an object that no server can have, and twice of what the agent parses."""
SPACE = "tenant"
_IDS = uuid.UUID("0f6f8a3e-6a2c-5c5e-8f3e-686f7374696c")

KINDS: Mapping[str, Kind] = {**kinds_annotations.KINDS, **kinds_bodies.KINDS}


@dataclass(frozen=True, slots=True)
class Hostile:
    """One pod, and what is hostile in it."""

    kinds: tuple[str, ...]
    body: Object

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def key(self) -> str:
        return f"{self.body['metadata']['namespace']}/{self.name}"

    @property
    def uid(self) -> str:
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


def written(body: Object) -> bytes:
    """The object in JSON."""
    found = json.dumps(body, ensure_ascii=False)
    for mark, literal in LITERALS.items():
        found = found.replace(f'"{mark}"', literal)
    return utf8(found)
