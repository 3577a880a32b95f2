"""What a pod asks of numalign by its annotations, checked: the ladder's first rung. Pure.

    numalign.io/policy           none | best-effort | restricted | single-numa-node
    numalign.io/scope            container | pod
    numalign.io/on-misalignment  fail | wait | evict | run
    numalign.io/cpu-options      cpuManagerPolicyOptions of this pod, "full-pcpus-only=true, align-by-socket=true"
    numalign.io/devices          PCI devices that numalign hands out itself, "numalign.io/nic=1"
    numalign.io/exclusive        auto | none | NAME,... | auto,-NAME,...   (agent.core.request.exclusive)
    numalign.io/mixed            NAME,...   (agent.core.request.mixed)
    numalign.io/isolated-cpus    prefer | avoid | require   (agent.core.request.isolated)
    numalign.io/memory-policy    interleave | preferred | bind   (agent.core.request.memory_policy)
    numalign.io/align            numa | numa,memory   (agent.core.confine)
    numalign.io/pin              false: leave this pod alone, whatever it is entitled to
    numalign.io/move-memory      true: bind its memory even when pages lie elsewhere already (safety rule S4)

A namespace's annotations are the defaults of its pods (they are merged below the pod's own before this is called). A
bad value never fails a pod: the node's default applies, and the problem is told with the values that are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from agent.core.request.exclusive import EXCLUSIVE
from agent.core.request.isolated import ISOLATED, IsolatedCpus
from agent.core.request.memory_policy import MEMORY_POLICY, MemoryPolicyWish
from agent.core.request.mixed import MIXED
from agent.errors import MalformedError
from agent.model.fields import words_in
from agent.model.go import parse_bool
from agent.model.likely import likely
from agent.model.notes import MORE, OURS, PREFIX, longest, misspelt
from agent.model.pod import Pod
from agent.model.rules import POD_OPTIONS, CpuOptions, OnMisalignment, Policy, Scope

POLICY, SCOPE, ON_MISALIGNMENT = f"{PREFIX}policy", f"{PREFIX}scope", f"{PREFIX}on-misalignment"
CPU_OPTIONS, DEVICES, ALIGN = f"{PREFIX}cpu-options", f"{PREFIX}devices", f"{PREFIX}align"
PIN, MOVE_MEMORY = f"{PREFIX}pin", f"{PREFIX}move-memory"
ALIGNS = ("numa", "numa,memory")
RELEASE, RELEASED = f"{PREFIX}release", f"{PREFIX}released"
GATE = f"{PREFIX}gate"
APART = frozenset({RELEASE, RELEASED, GATE, f"{PREFIX}tolerate-missing-plugin"})
"""What is meant for the agent's own pod, for the gatekeeper's admission policy, or for the runtime
(deploy/docs/nri.md): no problem either."""

MAX_DEVICES = 1024
"""Of one resource; a count of more digits is none (int() of thousands of digits is slow, and then refused)."""

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Problem:
    """An annotation that could not be followed.

    Attributes:
        annotation: its name.
        value: what it says; None where its name is what is wrong.
        why: a verb and what follows it.
        then: what becomes of it.
        meant: what was probably meant, "" for unknown.
    """

    annotation: str
    value: str | None
    why: str
    then: str = "the default of the node applies"
    meant: str = ""

    def __str__(self) -> str:
        shown = "" if self.value is None else f'"{self.value[:60]}" '
        meant = f" (did you mean {self.meant}?)" if self.meant else ""
        return f"{self.annotation}: {shown}{self.why}{meant}; {self.then}"


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What one pod sets for itself by its annotations; None and empty mean the node's default."""

    policy: Policy | None = None
    scope: Scope | None = None
    on_misalignment: OnMisalignment | None = None
    cpu_options: CpuOptions | None = None
    devices: Mapping[str, int] = field(default_factory=dict, hash=False)
    pin: bool = True
    move_memory: bool = False
    problems: tuple[Problem, ...] = ()


NOTHING = PodSettings()
"""All as the node does it."""


def pod_settings(pod: Pod, options: CpuOptions, policy: Policy) -> PodSettings:
    """Read a pod's annotations.

    Args:
        pod: the pod, its namespace's defaults merged in already.
        options: the node's CPU options, which a pod's own are laid over.
        policy: the node's policy, for combinations that exclude each other.
    """
    reader = _Reader(pod.annotations)
    asked_policy = reader.word(POLICY, Policy)
    settings = PodSettings(
        policy=asked_policy,
        scope=reader.word(SCOPE, Scope),
        on_misalignment=reader.word(ON_MISALIGNMENT, OnMisalignment),
        cpu_options=reader.options(options, asked_policy or policy),
        devices=reader.devices(),
        pin=reader.switch(PIN, default=True),
        move_memory=reader.switch(MOVE_MEMORY, default=False),
    )
    reader.check_align()
    reader.word(ISOLATED, IsolatedCpus)  # both are read elsewhere, with the node's settings
    reader.word(MEMORY_POLICY, MemoryPolicyWish)
    reader.left(EXCLUSIVE)
    reader.left(MIXED)
    reader.unknown()
    return replace(settings, problems=tuple(reader.problems))


class _Reader:
    """Takes annotations one by one and remembers what was wrong."""

    def __init__(self, annotations: Mapping[str, str]) -> None:
        slips = {*misspelt(annotations)}
        names = sorted(annotations, key=lambda key: (key in slips, key))
        self._left = {key: annotations[key] for key in names if key.startswith(PREFIX) or key in slips}
        self.problems: list[Problem] = []

    def _take(self, key: str) -> str | None:
        value = self._left.pop(key, None)
        if value is not None and len(value) > longest(key):
            self._wrong(key, value, f"goes on beyond {longest(key)} characters")
            return None
        return value

    def _wrong(self, key: str, value: str | None, why: str, meant: str = "") -> None:
        self.problems.append(Problem(key, value, why, meant=meant))

    def word(self, key: str, words: type[Word]) -> Word | None:
        """One of an enumeration's words."""
        value = self._take(key)
        if value is None:
            return None
        try:
            return words(value.strip())
        except ValueError:
            self._wrong(key, value, f"is not one of {', '.join(words)}", likely(value, words))
            return None

    def switch(self, key: str, *, default: bool) -> bool:
        """True or false, as Go's ParseBool takes them."""
        value = self._take(key)
        if value is None:
            return default
        try:
            return parse_bool(value.strip())
        except MalformedError:
            self._wrong(key, value, "is neither true nor false", switched(value))
            return default

    def options(self, base: CpuOptions, policy: Policy) -> CpuOptions | None:
        """The node's options with the pod's laid over them; None when the pod names none, or an impossible set."""
        value = self._take(CPU_OPTIONS)
        if value is None:
            return None
        asked: dict[str, bool] = {}
        for part in filter(None, words_in(value)):
            name, _, switch = (each.strip() for each in part.partition("="))
            if name not in POD_OPTIONS:
                why = f"names {name[:40]}, which is not one of {', '.join(POD_OPTIONS)}"
                self._wrong(CPU_OPTIONS, value, why, likely(name, POD_OPTIONS))
                return None
            try:
                asked[POD_OPTIONS[name].field] = parse_bool(switch)
            except MalformedError:
                meant = f"{name}={switched(switch) or 'true'}"
                self._wrong(CPU_OPTIONS, value, f"gives {name} neither true nor false", meant)
                return None
        chosen = replace(base, **asked)
        clash, barred = chosen.clash(), chosen.barred(policy)
        if clash:
            self._wrong(CPU_OPTIONS, value, f"combines {' and '.join(clash)}, which exclude each other")
            return None
        if barred:
            self._wrong(CPU_OPTIONS, value, f"combines {barred} with the policy {policy}")
            return None
        return chosen

    def devices(self) -> dict[str, int]:
        """Resource -> count."""
        value = self._take(DEVICES)
        found: dict[str, int] = {}
        for part in filter(None, words_in(value or "")):
            name, _, count = (each.strip() for each in part.partition("="))
            if not name or not _is_count(count):
                self._wrong(DEVICES, value or "", 'is no list like "numalign.io/nic=1"')
                return {}
            found[name] = found.get(name, 0) + int(count)
        return found

    def check_align(self) -> None:
        """The confinement itself is `agent.core.confine`'s; here only the spelling is checked."""
        value = self._take(ALIGN)
        if value is not None and ",".join(words_in(value)) not in ALIGNS:
            meant = likely(value, ALIGNS) or (ALIGNS[-1] if "mem" in value.lower() else "")
            self._wrong(ALIGN, value, f"is not one of {' | '.join(ALIGNS)}", meant)

    def left(self, key: str) -> None:
        """An annotation that is read elsewhere, with the node's settings, and checked there."""
        self._left.pop(key, None)

    def unknown(self) -> None:
        """Note any other annotation of our prefix: a typing error that would go unnoticed; one problem for all."""
        known = (
            POLICY, SCOPE, ON_MISALIGNMENT, CPU_OPTIONS, DEVICES, ALIGN, PIN, MOVE_MEMORY, EXCLUSIVE, MIXED, ISOLATED,
            MEMORY_POLICY,
        )  # fmt: skip
        more = self._left.pop(MORE, "")
        names = [name for name in self._left if name not in OURS | APART]
        if names:
            also = f"; nor are {', '.join(names[1:])}" if names[1:] else ""
            also += f" and {more} more" if more else ""
            meant = likely(names[0].partition("/")[2], [key.removeprefix(PREFIX) for key in known])
            listed = "" if meant else f", which are {', '.join(known)}"
            why = f"is no annotation of numalign{listed}{also}"
            self._wrong(names[0], None, why, meant and f"{PREFIX}{meant}")


def switched(text: str) -> str:
    """The value of a switch where another word for it was written; "" else."""
    word = text.strip().lower()
    if word in {"yes", "y", "on", "enabled"}:
        return "true"
    return "false" if word in {"no", "n", "off", "disabled"} else ""


def _is_count(text: str) -> bool:
    small = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_DEVICES))
    return small and 0 < int(text) <= MAX_DEVICES
