"""All of a node that decides on its next pod, as one value that fits into an annotation, and back.

An agent publishes it in the node's NodeResourceTopology object (`fleet.publish`), so that `numalign fleet` and
`numalign simulate --cluster` decide as the node would, with its own machine, rules and grants. Pods are numbers in
it, and namespaces of pods that wait are digests: it names no pod (safety rule S20).

What is not in it: the nodes' real memory at this moment (onMemoryShortage other than open), and what device plugins
prefer. The format is documented in deploy/docs/fleet.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.core.admission.node import Node
from agent.core.request.exempt import Exemptions
from agent.errors import NewerSummaryError, NumalignError, SummaryError
from agent.forecast.dry_run import DryRun
from agent.forecast.nameless import digest_of, nameless, numbered, plain
from agent.forecast.scheduling import needs_of
from agent.model.devices import DeviceInventory
from agent.model.fields import Field
from agent.model.idset import MAX_ID, CpuSet
from agent.model.ledger import Ledger
from agent.model.machine import Cpu, Machine
from agent.model.pod import Container, Pod, Qos
from agent.model.rules import Ceilings, PcieLocality, Rules
from agent.model.valuejson import MANY, Shared, value_from_json, value_to_json, whole
from agent.node.state import State
from agent.node.tracked_pod import SWITCHES, Switches
from agent.node.wait_queue import queue_of

VERSION = 1
"""Raised when the meaning of a field changes; readers refuse what is newer."""
LARGEST = 24 * 1024
"""Characters: a summary that is larger is not published."""
TOO_LARGE = "too large"
"""How the annotation begins where it is."""
UNPACKED = 4 * 2**20
"""Bytes that a reader unpacks at most."""

ATTRIBUTES = ("node", "core", "package", "die", "uncore", "kind")
"""Of a CPU, beside its id."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod in line: what it asks for.

    Attributes:
        pod: without its name; its namespace is `digest_of` the real one.
        since: seconds since the epoch: when it began to wait.
    """

    pod: Pod
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """The node.

    Attributes:
        machine: as the managers see it, without what no decision reads: caches, names, the kernel's own numbers, most
            often PCI functions.
        rules: settings that decisions depend on, the kubelet's minor with them.
        inventory: devices that are handed out, by whomever.
        ledger: grants of pods whose names are numbers.
        switches: the engine's own settings.
        excluded, included: excludedNamespaces and includedPods of the settings.
        held: resource -> thousandths that the node's pods request, as the scheduler counts; "pods" is one.
        waiting: pods that wait for room, in order.
        generation: grows with every change, also over a restart of the agent.
        changed: seconds since the epoch of the last change.
        enforcing: whether grants are written; otherwise the node promises nothing.
    """

    machine: Machine
    rules: Rules
    ledger: Ledger
    inventory: DeviceInventory = field(default_factory=DeviceInventory)
    switches: Switches = SWITCHES
    excluded: tuple[str, ...] = ()
    included: tuple[str, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    waiting: tuple[WaitingPod, ...] = ()
    generation: int = 0
    changed: float = 0.0
    enforcing: bool = True

    def node(self) -> Node:
        """The managers."""
        return Node(self.machine, self.rules, self.inventory)

    def begin(self, node: Node | None = None) -> DryRun:
        """The node as it is, to decide on pods that may never exist. Its clock is seconds since the epoch.

        Args:
            node: other managers for the same machine: what if it had another policy?
        """
        why, line = Exemptions(self.excluded, self.included).why, {each.pod.uid for each in self.waiting}
        # A pod in line is not left alone, whatever its name was that includedPods may have named.
        run = DryRun(node or self.node(), self.switches, lambda pod: "" if pod.uid in line else why(pod), self.ledger)
        for each in self.waiting:
            run.see(each.pod, each.since)
        return run

    def named(self, namespaces: Iterable[str]) -> NodeSummary:
        """The same where pods have their namespaces' names again, as far as they are among these."""
        names = {digest_of(each): each for each in namespaces}
        waiting = (replace(each, pod=_in_namespace(each.pod, names)) for each in self.waiting)
        pods = {
            uid: replace(each, pod=_in_namespace(each.pod, names)) if each.pod.namespace else each
            for uid, each in self.ledger.pods.items()
        }
        return replace(self, waiting=tuple(waiting), ledger=replace(self.ledger, pods=pods))


def summarize(
    state: State, *, began: float, enforcing: bool, excluded: Iterable[str] = (), included: Iterable[str] = ()
) -> NodeSummary:
    """Return a node's summary; the publisher adds the generation, and when it changed.

    Args:
        state: of the engine.
        began: seconds since the epoch at 0 of the engine's clock.
        enforcing: whether grants are written.
        excluded: excludedNamespaces of the settings.
        included: includedPods of the settings.
    """
    held: dict[str, int] = {}
    for known in state.pods.values():
        if not known.ended:
            for name, milli in needs_of(known.pod).amounts:
                held[name] = held.get(name, 0) + milli
    line = sorted(queue_of(state.pods, state.node.rules), key=lambda each: (each.since, each.pod.created))
    waiting = (
        WaitingPod(replace(plain(each.pod, f"w{number}"), namespace=digest_of(each.pod.namespace),
                           annotations=numbered(each.pod)), round(began + each.since, 1))
        for number, each in enumerate(line)
    )  # fmt: skip
    node = state.node
    return NodeSummary(
        machine=_bare(node.seen, node.rules), rules=node.rules,
        ledger=nameless(state.ledger, digests=node.rules.ceilings != Ceilings()),
        inventory=_needed(node.inventory), switches=state.switches, excluded=tuple(sorted(excluded)),
        included=tuple(sorted(included)), held=dict(sorted(held.items())), waiting=tuple(waiting),
        enforcing=enforcing,
    )  # fmt: skip


def encode(summary: NodeSummary) -> str:
    """A summary as text for an annotation: JSON, packed by zlib, in base 64."""
    plain = Field(value_to_json(replace(summary, ledger=_each_container(summary.ledger, _brief))))
    machine = {**plain.get("machine").mapping(), "cpus": cpus_to_json(summary.machine.cpus)}
    body = {**plain.mapping(), "version": VERSION, "machine": machine}
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def decode(text: str) -> NodeSummary:
    """The summary that `encode` wrote; nothing in the text is trusted.

    Raises:
        SummaryError: it is damaged, too large, or of a newer version, and the remedy.
    """
    return Decoder().decode(text)


class Managers:
    """The managers of many summaries: those of one kind of node are made once.

    Machine and devices of nodes that are alike are one object where one `Decoder` read them. The managers keep both,
    so that no other object gets their identity.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Node]] = {}

    def of(self, summary: NodeSummary, rules: Rules | None = None) -> Node:
        """The managers of a node, or what they would be under other rules.

        Raises:
            SettingsError: the CPU options forbid the policy or scope of the rules.
        """
        rules = rules or summary.rules
        shelf = self._known.setdefault((id(summary.machine), id(summary.inventory)), [])
        found = next((each for each in shelf if each.rules == rules), None)
        if found is None:
            found = Node(summary.machine, rules, summary.inventory)
            shelf.append(found)
        return found


class Decoder:
    """Reads many summaries: what is equal in them, machines above all, is read once, and is one object in memory."""

    def __init__(self) -> None:
        self._shared, self._managers = Shared(Machine, Rules, DeviceInventory), Managers()

    def decode(self, text: str) -> NodeSummary:
        """As `decode` above."""
        root = Field(_unpacked(text))
        try:
            version = root.get("version").integer(1, 2**31)
            if version > VERSION:
                raise NewerSummaryError(
                    f"the summary is of version {version}, this program reads up to {VERSION}: use a newer numalign"
                )
            machine = {**root.get("machine").mapping()}
            machine["cpus"] = self._shared.read(_cpus, machine.get("cpus"))
            rest = {**root.mapping(), "machine": machine}
            del rest["version"]
            _limits_back(rest.get("ledger"))
            found = value_from_json(Field(rest), NodeSummary, self._shared)
            _check_ids(found)
            node = self._managers.of(found)
            if found.waiting or found.ledger.devices.held:
                found.begin(node)
            else:
                node.start()
        except NumalignError as error:
            raise (
                error if isinstance(error, SummaryError) else SummaryError(f"the summary cannot be read: {error}")
            ) from None
        return found


def _unpacked(text: str) -> object:
    if text.startswith(TOO_LARGE):
        raise SummaryError(f"the summary is not published: it is {text[:80]}")
    if len(text) > 4 * LARGEST:
        raise SummaryError(f"the summary has {len(text)} characters; at most {4 * LARGEST} are read")
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b64decode(text, validate=True), UNPACKED)
        if not unpacker.eof:
            raise SummaryError(f"the summary is damaged, or has more than {UNPACKED} bytes")
        return json.loads(raw)
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise SummaryError(f"the summary is damaged: {str(error)[:100]}") from None


def _check_ids(found: NodeSummary) -> None:
    numbers = [each.id for each in found.machine.nodes] + [each.node for each in found.machine.cpus]
    numbers += [each.id for each in found.ledger.memory.nodes]
    if not all(0 <= number <= MAX_ID for number in numbers):
        raise SummaryError(f"the summary has a NUMA node that is not between 0 and {MAX_ID}")


def cpus_to_json(cpus: Iterable[Cpu]) -> dict[str, dict[str, str]]:
    """Which CPUs have a value of an attribute: attribute -> value -> CPUs in list format. Shorter than CPU by CPU."""
    found: dict[str, dict[str, CpuSet]] = {}
    for cpu in cpus:
        for name in ATTRIBUTES:
            column, value = found.setdefault(name, {}), getattr(cpu, name)
            if value not in (None, ""):
                column[f"{value}"] = column.get(f"{value}", CpuSet()) | CpuSet.of(cpu.id)
    return {name: {value: str(ids) for value, ids in column.items()} for name, column in found.items() if column}


def cpus_from_json(field: Field) -> tuple[Cpu, ...]:
    """The CPUs that `cpus_to_json` wrote; raises the field's fault where it is none of that."""
    found: dict[int, dict[str, object]] = {}
    for name, column in field.members(len(ATTRIBUTES)):
        if name not in ATTRIBUTES:
            raise column.wrong("is not known to this version")
        for value, ids in column.members(MANY):
            for number in value_from_json(ids, CpuSet):
                found.setdefault(number, {"id": number})[name] = value if name == "kind" else _unit(column, value)
    return tuple(value_from_json(field.at(found[number], f"[{number}]"), Cpu) for number in sorted(found))


def _unit(column: Field, value: str) -> int:
    """A unit's number; -1 is the kernel's package where it knows none."""
    return -1 if value == "-1" else whole(column, value)


def _brief(pod: Pod, container: Container) -> Container:
    """Limits of a Guaranteed pod are its requests (rule 8.1): they are left out."""
    same = pod.qos is Qos.GUARANTEED and container.limits == container.requests
    return replace(container, limits={}) if same else container


def _limits_back(ledger: object) -> None:
    """The same, undone: in what was read, which is checked later."""
    pods = ledger.get("pods") if isinstance(ledger, dict) else None
    for each in pods.values() if isinstance(pods, dict) else ():
        pod = each.get("pod") if isinstance(each, dict) else None
        if isinstance(pod, dict) and pod.get("qos") == Qos.GUARANTEED:
            containers = pod.get("containers")
            for one in containers if isinstance(containers, list) else ():
                if isinstance(one, dict) and "requests" in one:
                    one.setdefault("limits", one["requests"])


def _cpus(value: object, _shared: Shared | None) -> object:
    return value_to_json(cpus_from_json(Field(value, "machine.cpus")))


def _each_container(ledger: Ledger, change: Callable[[Pod, Container], Container]) -> Ledger:
    """The ledger with each container of its pods changed."""
    pods = {
        uid: replace(
            each, pod=replace(each.pod, containers=tuple(change(each.pod, one) for one in each.pod.containers))
        )
        for uid, each in ledger.pods.items()
    }
    return replace(ledger, pods=pods)


def _in_namespace(pod: Pod, names: Mapping[str, str]) -> Pod:
    return replace(pod, namespace=names.get(pod.namespace, pod.namespace))


def _bare(machine: Machine, rules: Rules) -> Machine:
    """Without what no decision reads: PCI functions only where devices are chosen by their place on the tree."""
    devices = machine.devices if rules.pcie is PcieLocality.CHOOSE else ()
    nodes = tuple(replace(each, movable=False) for each in machine.nodes)
    return replace(
        machine, nodes=nodes, disallowed=CpuSet(), caches=(), devices=devices, kernel=None, name="", warnings=()
    )


def _needed(inventory: DeviceInventory) -> DeviceInventory:
    """Return the inventory without the IOMMU groups of functions that are no device of a resource."""
    ids = {device.id for devices in inventory.resources.values() for device in devices}
    groups = {address: group for address, group in inventory.groups.items() if address in ids}
    return replace(inventory, groups=groups)
