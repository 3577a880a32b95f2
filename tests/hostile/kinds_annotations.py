"""Kinds of hostile things in annotations, and amounts of resources that no pod needs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable

from agent.model.notes import LISTS, OURS, PREFIX, WORDS
from tests.hostile.kinds import (
    CONTROL,
    DIGITS,
    MOST_ANNOTATIONS,
    Kind,
    Object,
    note,
    one_of,
    put,
    resources,
    room_of,
)

# ---- annotations


def _many(body: Object, notes: Iterable[tuple[str, str]]) -> None:
    """As many as there is room for."""
    room = room_of(body)
    for name, value in notes:
        room -= len(name) + len(value)
        if room < 0:
            return
        body["metadata"]["annotations"][name] = value


def _unknown(dice: random.Random, body: Object) -> None:
    mark = dice.randrange(1 << 20)
    _many(body, ((f"{PREFIX}{mark:x}-{number:x}", "") for number in range(10_000)))


def _value(name: str, value: Callable[[random.Random], str]) -> Kind:
    return lambda dice, body: note(body, name, value(dice))


def _of_ours(value: Callable[[random.Random], str]) -> Kind:
    """In an annotation of ours that dice chooses."""
    return lambda dice, body: note(body, dice.choice(sorted(WORDS | LISTS)).removeprefix(PREFIX), value(dice))


def _of_all(value: Callable[[random.Random], str]) -> Kind:
    """In every annotation of ours."""

    def every(dice: random.Random, body: Object) -> None:
        for key in sorted(WORDS | LISTS):
            note(body, key.removeprefix(PREFIX), value(dice)[: MOST_ANNOTATIONS // 16])

    return every


_VALUES: dict[str, Callable[[random.Random], str]] = {
    "long": lambda _dice: "x" * MOST_ANNOTATIONS,
    "control": lambda _dice: CONTROL * (MOST_ANNOTATIONS // 40),
    "nul": lambda _dice: "\0" * 10_000,
    "quotes": lambda dice: dice.choice("\"'\\<&{[") * 100_000,
    "emoji": lambda dice: dice.choice("😀𝟘é\u0301\u202e\uffff") * 20_000,
    "digits": lambda _dice: DIGITS,
    "digits-other": lambda dice: dice.choice("٣３²Ⅷ") * 5000,
    "words": lambda dice: ",".join(dice.choices(("numa", "memory", "true", "0", "restricted"), k=20_000)),
    "lines": lambda _dice: "\r\n" * 50_000,
    "empty": lambda _dice: "",
    "half-a-letter": lambda _dice: "\ud800",
}


def _wishes(dice: random.Random, body: Object) -> None:
    """All of them valid: what a tenant may ask for."""
    note(body, "policy", dice.choice(("none", "best-effort", "restricted", "single-numa-node")))
    note(body, "scope", dice.choice(("pod", "container")))
    note(body, "on-misalignment", dice.choice(("fail", "wait", "evict", "run")))
    note(body, "align", dice.choice(("numa", "numa,memory", "memory")))
    note(body, "move-memory", "true")
    note(body, "devices", "nvme=1")


def _claims(_dice: random.Random, body: Object) -> None:
    held = {"cpus": "1-15", "devices": {"nvme": ["0000:01:00.0"] * 2000}, "mems": "0-1", "aligned": True}
    word = {"policy": "static", "containers": {"c": held}, "instead": "run", "refused": "x"}
    note(body, "assignment", json.dumps(word))
    for name in sorted(OURS - {f"{PREFIX}assignment"}):
        note(body, name.removeprefix(PREFIX), "1-15")


def _mirror(dice: random.Random, body: Object) -> None:
    digest = f"{dice.getrandbits(128):032x}"
    marks = {"config.hash": digest, "config.mirror": digest, "config.source": "file", "config.seen": "x"}
    body["metadata"]["annotations"] |= {f"kubernetes.io/{key}": value for key, value in marks.items()}


_ANNOTATIONS: dict[str, Kind] = {
    "annotations-unknown-10000": _unknown,
    "annotations-foreign-10000": lambda dice, body: _many(
        body, ((f"x.io/{number:x}", str(dice.randrange(10**9))) for number in range(10_000))
    ),
    "annotations-one-too-large": put(
        "metadata", "annotations", lambda _dice: {f"{PREFIX}policy": "x" * (MOST_ANNOTATIONS + 1)}
    ),
    "annotation-name-of-316": lambda _dice, body: body["metadata"]["annotations"].update(
        {f"{'.'.join(['n' * 61] * 3)}.numalign.io/{'x' * 63}": "x", f"{PREFIX}{'x' * 63}": "x"}
    ),
    "annotation-name-odd": lambda _dice, body: body["metadata"]["annotations"].update(
        {PREFIX: "999999999", f"{PREFIX}a/b": "", "numalign.io": "", f"{PREFIX}é": ""}
    ),
    **{
        name: kind for word, value in _VALUES.items()
        for name, kind in ((f"value-{word}", _of_ours(value)), (f"values-{word}", _of_all(value)))
    },
    "devices-5000-digits": _value("devices", lambda _dice: f"x={DIGITS}"),
    "devices-20000": _value("devices", lambda _dice: ",".join(f"d{number:x}=1" for number in range(20_000))),
    "cpu-options-20000": _value(
        "cpu-options", lambda _dice: ",".join(f"full-pcpus-only={number % 2 == 0}" for number in range(20_000))
    ),
    "wishes": _wishes,
    "assignment-deep": _value("assignment", lambda dice: dice.choice(("[", '{"a":')) * 30_000),
    "assignment-numbers": _value(
        "assignment", lambda _dice: f'{{"containers":{{"c":{{"devices":{{"x":[{DIGITS},NaN,-Infinity,1e999]}}}}}}}}'
    ),
    "assignment-claims": _claims,
    "mirror-claimed": _mirror,
}  # fmt: skip


# ---- quantities and resources


_QUANTITIES = {
    "1e300": "1e300", "1e-300": "1e-300", "minus-zero": "-0", "minus": "-1", "plus": "+2", "tiny": "1n",
    "fraction": "0." + "0" * 300 + "1", "binary": "9Ei", "int64": "9223372036854775807",
    "over": "9223372036854775808",
    "digits": DIGITS, "digits-binary": f"{DIGITS}Ki", "hex": "0x10", "spaces": " 2 ", "wide": "２", "dot": ".5",
    "dots": "2.", "zeros": "0" * 4999 + "2", "exponent": "1E18", "exponent-digits": f"1e{DIGITS}", "nan": "NaN",
    "empty": "", "under": "1_0",
}  # fmt: skip
_RESOURCES = one_of("cpu", "memory", "example.com/x", "hugepages-2Mi", "ephemeral-storage")


def _quantity(text: str) -> Kind:
    return _amounts(lambda dice: {_RESOURCES(dice): text})


def _amounts(more: Callable[[random.Random], dict[str, str]]) -> Kind:
    """Resources beside a little of CPU and memory."""
    return lambda dice, body: resources(body, **{"cpu": "1m", "memory": "1Mi", **more(dice)})


KINDS: dict[str, Kind] = {
    **_ANNOTATIONS,
    **{f"quantity-{name}": _quantity(text) for name, text in _QUANTITIES.items()},
    "quantity-not-text": lambda dice, body: resources(body, cpu=dice.choice((1e300, -0.0, 10**400, True, [], {}))),
    "resources-60": _amounts(
        lambda _dice: {f"{'.'.join(['r' * 60] * 4)}/{'x' * 58}{number:03}": "1" for number in range(60)}
    ),
    "resources-2000": _amounts(lambda _dice: {f"example.com/x{number}": "1" for number in range(2000)}),
    "hugepages-odd": _amounts(
        lambda dice: {f"hugepages-{dice.choice(('0', '-2Mi', '1e300', DIGITS[:200], '3', '２Mi'))}": "0"}
    ),
    "overhead": put("spec", "overhead", lambda dice: {"cpu": dice.choice(("-1", "1e300", DIGITS)), "memory": "1Mi"}),
    "pod-level": put("spec", "resources", lambda dice: {
        "limits": {"cpu": dice.choice(("1e300", "1n", DIGITS)), "memory": "1Mi"}
    }),
    # CPUs that it really gets.
    "exclusive": lambda dice, body: resources(body, cpu=str(dice.randint(1, 2)), memory="8Mi"),
}  # fmt: skip
