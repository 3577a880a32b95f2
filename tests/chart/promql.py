"""Which metrics, labels and label values a PromQL expression of ours names, and whether the code has them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent.core.accounting.usage import MemoryUse, NodeUse
from agent.model.cgroup import Cause
from agent.model.outcome import Reason
from agent.model.rules import Policy
from agent.observe.metrics import GATEKEEPER, SPECS, Spec

ADDED = frozenset({"node", "job", "instance"})
"""Labels that the scrape adds."""
OTHERS = frozenset({"up"})
_SELECTOR = re.compile(r"\b(numalign_[a-z_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)\s*(=~|!=|!~|=)\s*"((?:[^"\\]|\\.)*)"')
_BY = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_SUFFIXES = ("_bucket", "_sum", "_count")
VALUES = {
    ("numalign_cpus", "use"): {"exclusive", "shared", "reserved", "free"},
    ("numalign_memory_bytes", "use"): {"system", "granted", "free"},
    ("numalign_writes_total", "cause"): {cause.value for cause in Cause},
    ("numalign_admissions_total", "reason"): {reason.value for reason in Reason},
    ("numalign_admissions_total", "policy"): {policy.value for policy in Policy},
    ("numalign_admissions_total", "outcome"): {"aligned", "misaligned", "refused"},
    ("numalign_placed_pods", "alignment"): {"aligned", "misaligned"},
    ("numalign_pods", "state"): {"pinned", "shared", "refused", "exempt", "ended"},
    ("numalign_checkpoint_saves_total", "result"): {"ok", "failed"},
}
assert VALUES["numalign_cpus", "use"] <= set(NodeUse.__slots__)
assert VALUES["numalign_memory_bytes", "use"] <= {*MemoryUse.__slots__, "free"}


def faults(expr: str) -> Iterator[str]:
    """What an expression names and the code does not have; nothing when all of it is there."""
    specs = {spec.name: spec for spec in (*SPECS, *GATEKEEPER)}
    labels = set(ADDED) | {"le"}
    for name, matchers in _SELECTOR.findall(expr):
        spec = specs.get(name) or _histogram(name, specs)
        if spec is None:
            yield f"{name} is no metric of numalign"
            continue
        labels |= set(spec.labels)
        for label, operator, value in _MATCHER.findall(matchers):
            if label not in {*spec.labels, *ADDED}:
                yield f"{name} has no label {label}"
            known = VALUES.get((name, label))
            if known and operator in {"=", "!="} and value not in known and "$" not in value:
                yield f"{name} has no {label} {value!r}"
            if known and operator == "=~" and not any(re.fullmatch(value, each) for each in known):
                yield f"{name} has no {label} like {value!r}"
    for group in _BY.findall(expr):
        yield from (f"no metric here has the label {each}" for each in _words(group) if each not in labels)


def named(expr: str) -> set[str]:
    """Names of metrics, those of histograms without their suffix."""
    specs = {spec.name: spec for spec in (*SPECS, *GATEKEEPER)}
    found = (specs.get(name) or _histogram(name, specs) for name, _ in _SELECTOR.findall(expr))
    return {spec.name for spec in found if spec}


def _histogram(name: str, specs: dict[str, Spec]) -> Spec | None:
    for suffix in _SUFFIXES:
        spec = specs.get(name.removesuffix(suffix))
        if name.endswith(suffix) and spec and spec.kind == "histogram":
            return spec
    return None


def _words(group: str) -> list[str]:
    return [each.strip() for each in group.split(",") if each.strip()]
