"""Settings and machine: read at start, and again when something about them changed.

Called by `agent.app.service.followed_setup`. Reading is cheap only when nothing changed, so a fingerprint
is compared first: of the configuration file its time, size and inode (a ConfigMap is replaced through links), of the
machine which CPUs and nodes are online and how many huge pages there are.

Wrong settings change nothing: those in force stay, also over a restart (`agent.app.statedir.last_settings`).
Meanwhile the agent is not ready, and says why.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from agent.app.statedir import last_settings
from agent.app.statedir.node_allocatable import NodeAllocatable
from agent.core.admission.allocatable import MOST_PODS, node_room
from agent.core.admission.node import Node
from agent.core.devices.claims import ClaimFollower
from agent.core.machines.kubelet_view import managed
from agent.core.request.exempt import Exemptions
from agent.errors import NumalignError, SettingsError
from agent.host.files import HostFiles
from agent.host.settings_file import observe_only_set, read_settings
from agent.host.sysfs.discovery import discover
from agent.model.devices import DeviceInventory
from agent.model.machine import Machine
from agent.model.rules import Enforcement
from agent.node.tracked_pod import Switches, most_waiting
from agent.settings import Settings, parse, rules_of
from agent.settings.conflicts import check_kernel
from agent.settings.from_node import derives_sum, reserved_on_nodes, with_node_memory
from agent.settings.gates import uncounted
from agent.settings.hardware import fitted
from agent.settings.node_kubelet import doubt
from agent.settings.remarks import remarks
from agent.settings.to_rules import reserved_memory

_ONLINE = ("/sys/devices/system/cpu/online", "/sys/devices/system/node/online", "/proc/sys/vm/nr_hugepages")


CONFIG = Path("/etc/numalign/config.yaml")
"""Where the chart puts it."""


class ProblemReporter(Protocol):
    """Takes problems."""

    def problem(self, what: str, text: str) -> None:
        """Report a problem that no pod has caused."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What decisions depend on.

    Attributes:
        machine, settings: as read.
        node: the managers made of both.
        ignored: what of the configuration file is not needed, one sentence each.
        missed: what of the hardware that the settings name is not there now, one sentence each.
        whole: the machine as it was when nothing was missed last; None if that was never so.
        wrong: why other settings are in force than the file has, "" where the file's are.
        doubts: why answers may differ from those of the node's kubelet, one sentence each.
        kept: what the kubelet keeps from pods, by the Node, as far as it is known.
        remarks: consequences of the settings on this machine, one sentence each.
    """

    machine: Machine
    settings: Settings
    node: Node
    ignored: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    whole: Machine | None = None
    wrong: str = ""
    doubts: tuple[str, ...] = ()
    kept: NodeAllocatable = field(default_factory=NodeAllocatable)
    remarks: tuple[str, ...] = ()

    @property
    def switches(self) -> Switches:
        """The engine's own settings."""
        settings = self.settings
        dry = settings.enforcement is Enforcement.DRY_RUN
        return Switches(
            observe_only=settings.observe_only or dry,
            pin_adopted=settings.pin_adopted,
            lift_quota=settings.lifts_quota,
            waiting_limit=settings.waiting.limit,
            most_waiting=most_waiting(settings.waiting.sandboxes_per_minute),
            hold_back_others=settings.waiting.hold_back_others,
        )

    def exemptions(self, *, static: bool, own: str = "") -> Exemptions:
        """Which pods are left alone (safety.md S2)."""
        return Exemptions(self.settings.excluded_namespaces, self.settings.included_pods, own, static)

    def allocatable(self, most_pods: int = MOST_PODS) -> dict[str, int]:
        """What the machine has for pods, even when empty, resource -> thousandths: as its Node would say it.

        Args:
            most_pods: the kubelet's maxPods.
        """
        settings, kept = self.settings, self.kept
        if kept.known:
            return node_room(self.node, reserved_cpu=kept.cpu_milli, reserved_memory=kept.memory, most_pods=most_pods)
        told = sum(part.get("cpu", 0) for part in (settings.kube_reserved, settings.system_reserved))
        cpus = 1000 * len(settings.reserved_system_cpus or ()) or told or 1000 * len(self.node.reserved)
        memory = reserved_on_nodes(settings) if derives_sum(settings) else reserved_memory(settings, self.machine)
        return node_room(self.node, reserved_cpu=cpus, reserved_memory=memory, most_pods=most_pods)


def read_setup(
    config: Path | None, root: str | None, kept: NodeAllocatable | None = None, before: Setup | None = None
) -> Setup:
    """Read both.

    Args:
        config: the configuration file, None for the defaults.
        root: the machine, None for this one.
        kept: what the Node says that the kubelet keeps from pods; None where there is no Node.
        before: what was in force until now; None at a start.

    Raises:
        SettingsError: the file is wrong, or asks for what the machine never had.
        HostError: the machine cannot be read.
    """
    settings, ignored = _read(config, root)
    return made(settings, machine_at(root), ignored, kept, before)


def machine_at(root: str | None) -> Machine:
    """Discover this machine; the readers of recorded and described machines are loaded where one is named."""
    if root is None:
        return discover(HostFiles("/"), "this machine")
    from agent.host.machines import open_machine  # noqa: PLC0415 - an agent of a cluster serves the machine it runs on

    return open_machine(root)


def _read(config: Path | None, root: str | None) -> tuple[Settings, tuple[str, ...]]:
    settings, ignored = read_settings(config) if config else parse({})
    _held_against_kernel(settings, root)
    return settings, ignored


def _held_against_kernel(settings: Settings, root: str | None) -> None:
    """What the kernel of this machine cannot do is refused; a recorded machine does not say which it had."""
    if root is None:
        check_kernel(settings, os.uname().release)


def begin(config: Path | None, root: str | None, state: Path, kept: NodeAllocatable | None = None) -> Setup:
    """Read both as an agent that begins to serve: where the file is wrong, it goes on with the settings of before.

    Args:
        config: the configuration file, None for the defaults.
        root: the machine, None for this one.
        state: the state folder, see `remember`.
        kept: see `read_setup`.

    Raises:
        SettingsError: the file is wrong, and no earlier one is known that can be served on this machine.
        HostError: the machine cannot be read.
    """
    try:
        return read_setup(config, root, kept)
    except SettingsError as error:
        last = last_settings.load(state)
        if config is None or last is None:
            raise
        settings, wrong = instead_of(config, last, error)
        try:
            _held_against_kernel(settings, root)
            return replace(made(settings, machine_at(root), kept=kept), wrong=wrong)
        except SettingsError:
            raise error from None


def remember(now: Setup, state: Path) -> None:
    """Save the settings in force for a start with a wrong file, unless they are saved already."""
    if not now.wrong and last_settings.load(state) != now.settings:
        last_settings.save(state, now.settings)


def instead_of(config: Path, last: Settings, error: NumalignError) -> tuple[Settings, str]:
    """What is in force in place of a wrong file, and a sentence that says so.

    The kill switch is obeyed all the same (S3): the edit that turns it on in a hurry may have a mistake beside it.
    """
    if not observe_only_set(config):
        return last, f"the old settings stay: {error}"
    stopped = replace(last, observe_only=True)
    return stopped, f"the old settings stay, with observeOnly: true: {error}"


def again(
    config: Path | None, root: str | None, before: Setup, told: ProblemReporter,
    *, kept: NodeAllocatable | None = None,
) -> Setup:  # fmt: skip
    """Read both again. New settings that are wrong keep no old machine in force: then the old settings serve the new.

    Args:
        config: the configuration file, None for the defaults.
        root: the machine, None for this one.
        before: what was in force until now.
        told: takes what is wrong with the settings, and what hardware is missing.
        kept: see `read_setup`.

    Raises:
        SettingsError, HostError: the old settings cannot be served on this machine, or it cannot be read.
    """
    machine = machine_at(root)
    try:
        settings, ignored = _read(config, root)
        now = made(settings, machine, ignored, kept, before)
    except NumalignError as error:
        if config is None:
            raise
        settings, wrong = instead_of(config, before.settings, error)
        told.problem("settings", wrong)
        now = replace(made(settings, machine, before.ignored, kept, before), wrong=wrong)
    if now.missed != before.missed:
        tell_missed(now, told)
    if now.doubts != before.doubts:
        tell_doubts(now, told)
    return now


def tell_wrong(now: Setup, told: ProblemReporter) -> None:
    """Say at a start what is wrong with the file, and what of the hardware that the settings name is not there."""
    if now.wrong:
        told.problem("settings", now.wrong)
    tell_missed(now, told)
    tell_doubts(now, told)


def tell_doubts(now: Setup, told: ProblemReporter) -> None:
    """Say why answers may differ from those of the node's kubelet."""
    for text in now.doubts:
        told.problem("kubelet", text)


def tell_missed(now: Setup, told: ProblemReporter) -> None:
    """Say what of the hardware that the settings name is not there."""
    for text in now.missed:
        told.problem("hardware", text)


def made(
    settings: Settings, machine: Machine, ignored: tuple[str, ...] = (), kept: NodeAllocatable | None = None,
    before: Setup | None = None,
) -> Setup:  # fmt: skip
    """The managers for settings on a machine; raises SettingsError for what the machine never could give."""
    whole = before.whole if before else None
    mode = settings.compatibility.mode
    seen = managed(machine, mode)
    filled = with_node_memory(settings, seen, kept.memory if kept else None)
    filled, missed = fitted(filled, seen, managed(whole, mode) if whole else None)
    kubelet = kept.kubelet if kept else ""
    node_reserved = kept.cpu_milli if kept else 0
    rules = rules_of(filled, seen, node_reserved=node_reserved, kubelet=kubelet)
    if kept is not None:
        rules = replace(rules, advertised=kept.resources)
    followed = (ClaimFollower(seen, rules),) if settings.dra.enabled else ()
    node = Node(machine, rules, DeviceInventory.from_machine(seen, rules.devices), followed)
    node.start()  # says what the managers refuse
    answers = settings.compatibility
    uncertain = (doubt(answers, kubelet), *uncounted(settings.feature_gates, answers, rules.minor))
    doubts = tuple(text for text in uncertain if text)
    said = tuple(remarks(settings, filled, seen, node_reserved, memory=kept.memory if kept else 0))
    return Setup(
        machine, settings, node, ignored, missed, whole if missed else machine, doubts=doubts,
        kept=kept or NodeAllocatable(), remarks=said,
    )  # fmt: skip


def config_of(config: Path | None, root: str | None) -> Path | None:
    """The file named, or the one of the agent's own pod if this is one and its own machine is meant."""
    return CONFIG if config is None and root is None and CONFIG.is_file() else config


def config_print(config: Path | None) -> object:
    """Changes when the configuration file does; None while it cannot be read."""
    with contextlib.suppress(OSError):  # it cannot be read: the next look asks again
        found = os.stat(config) if config else None  # noqa: PTH116 - because one call of three words is all
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found else ()
    return None


def machine_print(root: str | None) -> object:
    """Changes when CPUs or nodes of this machine come and go; a recorded machine never changes."""
    if root is not None:
        return ()
    texts = []
    for path in _ONLINE:
        with contextlib.suppress(OSError):  # a kernel without that file: one print without it
            texts.append(Path(path).read_text(encoding="ascii"))
    return tuple(texts)
