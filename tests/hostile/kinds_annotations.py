"""Kinds of hostile things in annotations, and amounts of resources that no pod needs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

from agent.model.notes import LISTS, OURS, PREFIX, WORDS
from tests.hostile.kinds import (
    DIGITS,
    MOST_ANNOTATIONS,
    Kind,
    Object,
    note,
    registering,
    resources,
    room_of,
)

_CONTROL = "".join(map(chr, range(1, 32))) + "\x7f\u2028\u202e\ufeff"

KINDS: dict[str, Kind] = {}
_kind = registering(KINDS)

# ---- annotations


def _known(dice: random.Random) -> str:
    return dice.choice(sorted(WORDS | LISTS)).removeprefix(PREFIX)


def _many(body: Object, notes: Iterator[tuple[str, str]]) -> None:
    """As many as there is room for."""
    room = room_of(body)
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
        note(body, _known(dice), value(dice))

    def every(dice: random.Random, body: Object) -> None:
        for key in sorted(WORDS | LISTS):
            note(body, key.removeprefix(PREFIX), value(dice)[: MOST_ANNOTATIONS // 16])

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
    note(body, "devices", f"x={DIGITS}")


@_kind("devices-20000")
def _device_list(_dice: random.Random, body: Object) -> None:
    note(body, "devices", ",".join(f"d{number:x}=1" for number in range(20_000)))


@_kind("cpu-options-20000")
def _options(_dice: random.Random, body: Object) -> None:
    note(body, "cpu-options", ",".join(f"full-pcpus-only={number % 2 == 0}" for number in range(20_000)))


@_kind("wishes")
def _wishes(dice: random.Random, body: Object) -> None:
    """All of them valid: what a tenant may ask for."""
    note(body, "policy", dice.choice(("none", "best-effort", "restricted", "single-numa-node")))
    note(body, "scope", dice.choice(("pod", "container")))
    note(body, "on-misalignment", dice.choice(("fail", "wait", "evict", "run")))
    note(body, "align", dice.choice(("numa", "numa,memory", "memory")))
    note(body, "move-memory", "true")
    note(body, "devices", "nvme=1")


@_kind("assignment-deep")
def _deep(dice: random.Random, body: Object) -> None:
    note(body, "assignment", dice.choice(("[", '{"a":')) * 30_000)


@_kind("assignment-numbers")
def _numbers(_dice: random.Random, body: Object) -> None:
    note(body, "assignment", f'{{"containers":{{"c":{{"devices":{{"x":[{DIGITS},NaN,-Infinity,1e999]}}}}}}}}')


@_kind("assignment-claims")
def _claims(_dice: random.Random, body: Object) -> None:
    held = {"cpus": "1-15", "devices": {"nvme": ["0000:01:00.0"] * 2000}, "mems": "0-1", "aligned": True}
    word = {"policy": "static", "containers": {"c": held}, "instead": "run", "refused": "x"}
    note(body, "assignment", json.dumps(word))
    for name in sorted(OURS - {f"{PREFIX}assignment"}):
        note(body, name.removeprefix(PREFIX), "1-15")


@_kind("mirror-claimed")
def _mirror(dice: random.Random, body: Object) -> None:
    digest = f"{dice.getrandbits(128):032x}"
    marks = {"config.hash": digest, "config.mirror": digest, "config.source": "file", "config.seen": "x"}
    body["metadata"]["annotations"] |= {f"kubernetes.io/{key}": value for key, value in marks.items()}


# ---- quantities and resources


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
        resources(body, **amounts)

    KINDS[f"quantity-{name}"] = put


for _name, _text in _QUANTITIES.items():
    _quantity(_name, _text)


@_kind("quantity-not-text")
def _not_text(dice: random.Random, body: Object) -> None:
    resources(body, cpu=dice.choice((1e300, -0.0, 10**400, True, [], {})))  # type: ignore[arg-type] # on purpose


@_kind("resources-60")
def _many_resources(_dice: random.Random, body: Object) -> None:
    host = ".".join(["r" * 60] * 4)
    resources(body, cpu="1m", memory="1Mi", **{f"{host}/{'x' * 58}{number:03}": "1" for number in range(60)})


@_kind("resources-2000")
def _more_resources(_dice: random.Random, body: Object) -> None:
    resources(body, cpu="1m", memory="1Mi", **{f"example.com/x{number}": "1" for number in range(2000)})


@_kind("hugepages-odd")
def _odd_pages(dice: random.Random, body: Object) -> None:
    size = dice.choice(("0", "-2Mi", "1e300", DIGITS[:200], "3", "２Mi"))
    resources(body, **{"cpu": "1m", "memory": "1Mi", f"hugepages-{size}": "0"})


@_kind("overhead")
def _overhead(dice: random.Random, body: Object) -> None:
    body["spec"]["overhead"] = {"cpu": dice.choice(("-1", "1e300", DIGITS)), "memory": "1Mi"}


@_kind("pod-level")
def _pod_level(dice: random.Random, body: Object) -> None:
    body["spec"]["resources"] = {"limits": {"cpu": dice.choice(("1e300", "1n", DIGITS)), "memory": "1Mi"}}


@_kind("exclusive")
def _exclusive(dice: random.Random, body: Object) -> None:
    """CPUs that it really gets."""
    resources(body, cpu=str(dice.randint(1, 2)), memory="8Mi")
