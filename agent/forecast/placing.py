"""Which nodes a pod's specification lets kube-scheduler bind it to, beyond what it requests.

Read for `numalign simulate --cluster`: nodeSelector, required node affinity, tolerations. What of a specification
decides as well and is not looked at here is named in `Placing.unseen`. Nothing in a document is trusted: what is
malformed is a BadPodError with its path.

https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/,
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from agent.model.fields import Field, show

MANY = 1000
"""Terms, labels, taints: more are refused."""
KEEPS_OUT = ("NoSchedule", "NoExecute")
"""Effects of taints that keep pods away."""
NAME_FIELD = "metadata.name"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
SCHEDULER = "scheduler "
"""How `Placing.unseen` names a scheduler that is not OWN_KIND."""
OWN_KIND = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of matchExpressions or matchFields."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def met(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are so."""
        return _OPERATORS[self.operator](labels.get(self.key), self.values)


@dataclass(frozen=True, slots=True)
class Term:
    """One of nodeSelectorTerms: all of it must hold; one that says nothing never does."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def met(self, node: BindingFacts) -> bool:
        """Whether a node is so."""
        said = self.labels or self.fields
        names = {NAME_FIELD: node.name}
        return (
            bool(said)
            and all(each.met(node.labels) for each in self.labels)
            and all(each.met(names) for each in self.fields)
        )


@dataclass(frozen=True, slots=True)
class Taint:
    """Of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Of a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        """Whether it tolerates a taint; Gt and Lt compare the taint's whole number with its own (from 1.35)."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("Gt", "Lt"):
            return bool(self.key) and _compared(taint.value, (self.value,), above=self.operator == "Gt")
        same = bool(self.key) and self.value == taint.value
        return self.operator == "Exists" or (self.operator == "Equal" and same)


@dataclass(frozen=True, slots=True)
class BindingFacts:
    """What of a Node object decides which pods may go there.

    Attributes:
        name: of the node.
        labels: its labels.
        taints: those that keep pods away.
        unschedulable: it is cordoned.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Placing:
    """What a pod's specification says of nodes.

    Attributes:
        selector: labels that the node must have.
        terms: required node affinity: one of them must hold; None where there is none.
        tolerations: of taints.
        unseen: what else decides where it goes, and is not looked at; in words.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    unseen: tuple[str, ...] = ()

    def barred(self, node: BindingFacts) -> str:
        """Why the pod may not be bound to a node, in a few words; "" where it may."""
        taints = node.taints
        if node.unschedulable and all(taint.key != UNSCHEDULABLE for taint in taints):
            taints = (Taint(UNSCHEDULABLE), *taints)
        for taint in taints:
            if not any(each.covers(taint) for each in self.tolerations):
                return "cordoned" if taint.key == UNSCHEDULABLE else f"taint {taint.key}"
        if any(node.labels.get(key) != value for key, value in self.selector):
            return "nodeSelector"
        return "" if self.terms is None or any(term.met(node) for term in self.terms) else "node affinity"


ANYWHERE = Placing()
"""Of a pod that says nothing of nodes."""
OF_A_DAEMON = tuple(
    Toleration(f"node.kubernetes.io/{name}", "Exists", effect=effect)
    for name, effect in (
        ("not-ready", "NoExecute"), ("unreachable", "NoExecute"), ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"), ("pid-pressure", "NoSchedule"), ("unschedulable", "NoSchedule"),
    )
)  # fmt: skip
"""What the DaemonSet controller adds to its pods."""


def placing_of(spec: Field) -> Placing:
    """What a pod's spec says of nodes; raises the field's fault where it is malformed."""
    affinity = spec.get("affinity")
    required = affinity.get("nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = tuple(map(_term, required.get("nodeSelectorTerms").items(MANY))) if required else None
    tolerations = tuple(map(_toleration, spec.get("tolerations").items(MANY)))
    selector = tuple((key, value.text()) for key, value in spec.get("nodeSelector").members(MANY))
    return Placing(selector, terms, tolerations, tuple(_unseen(spec, affinity)))


def facts_of(node: Field) -> BindingFacts:
    """What a Node object says; raises the field's fault where it is malformed."""
    metadata, spec = node.get("metadata"), node.get("spec")
    labels = {key: value.text() for key, value in metadata.get("labels").members(MANY)}
    found = map(_taint, spec.get("taints").items(MANY))
    cordoned = spec.get("unschedulable")
    taints = tuple(taint for taint in found if taint.effect in KEEPS_OUT)
    return BindingFacts(metadata.get("name").text(), labels, taints, bool(cordoned) and cordoned.flag())


def _term(term: Field) -> Term:
    labels, fields = (term.get(f"match{part}").items(MANY) for part in ("Expressions", "Fields"))
    return Term(tuple(map(_requirement, labels)), tuple(map(_requirement, fields)))


def _requirement(line: Field) -> Requirement:
    operator, values = line.get("operator"), line.get("values").items(MANY)
    if operator.text() not in _OPERATORS:
        raise operator.wrong(f"{show(operator.value)} is not one of {', '.join(_OPERATORS)}")
    return Requirement(line.get("key").text(), operator.text(), tuple(each.text() for each in values))


def _toleration(line: Field) -> Toleration:
    key, operator, value, effect = (_text(line, name) for name in ("key", "operator", "value", "effect"))
    return Toleration(key, operator or "Equal", value, effect)


def _taint(line: Field) -> Taint:
    return Taint(line.get("key").text(), _text(line, "value"), line.get("effect").text())


def _text(line: Field, name: str) -> str:
    found = line.get(name)
    return found.text() if found else ""


def _unseen(spec: Field, affinity: Field) -> Iterator[str]:
    """In the order of the documentation's list."""
    if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
        yield "affinity to pods"
    if affinity.get("nodeAffinity").get("preferredDuringSchedulingIgnoredDuringExecution"):
        yield "preferred nodes"
    if list(spec.get("topologySpreadConstraints").items(MANY)):
        yield "topology spreading"
    if any(volume.get("persistentVolumeClaim") or volume.get("ephemeral") for volume in _listed(spec, "volumes")):
        yield "where volumes are"
    if list(spec.get("resourceClaims").items(MANY)):
        yield "resource claims"
    if list(spec.get("schedulingGates").items(MANY)):
        yield "scheduling gates"
    if any(_ports(each) for each in _listed(spec, "containers")):
        yield "host ports"
    name = spec.get("schedulerName")
    if name and name.text() not in ("", OWN_KIND):
        yield f"{SCHEDULER}{name.text()}"


def _ports(container: Field) -> bool:
    return any(port.get("hostPort") for port in container.get("ports").items(MANY))


def _listed(spec: Field, name: str) -> Iterable[Field]:
    return spec.get(name).items(MANY)


def _compared(value: str | None, values: tuple[str, ...], *, above: bool) -> bool:
    """Gt and Lt: both are whole numbers, or it does not hold."""
    try:
        left, right = _number(value or ""), _number(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if above else left < right


def _number(text: str) -> int:
    if len(text) > 20 or not text.isascii():  # noqa: PLR2004 - digits of 64 bits
        raise ValueError(text)
    return int(text)


_OPERATORS: Mapping[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": lambda value, values: _compared(value, values, above=True),
    "Lt": lambda value, values: _compared(value, values, above=False),
}
