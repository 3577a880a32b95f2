"""What `numalign explain` and `numalign plan` ask about: the node as its agent left it in the state folder.

Nothing is written, made or locked, so it works beside a running agent, on a copy of its state folder, and on a folder
that may only be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.app import setup
from agent.app.offline.folder import as_it_was, carried, saved_in, setup_of
from agent.app.statedir import unplaced_pods as unplaced
from agent.app.statedir.unplaced_pods import UnplacedPod
from agent.core.admission.node import Node
from agent.core.cgroups.enforced import Unenforced, note
from agent.core.explain.explainer import explain
from agent.core.explain.standing import PodStanding
from agent.core.explain.values import Explanation
from agent.errors import SettingsError
from agent.forecast.workload import role_of
from agent.host.checkpoint import Checkpoint
from agent.host.manifests import ManifestFolder, read_folder
from agent.host.workloads import STDIN, read_workloads
from agent.model.ledger import Ledger
from agent.model.pod import Pod
from agent.node.deciding import checked_settings
from agent.node.device_tracker import DeviceTracker, reported_before


@dataclass(frozen=True, slots=True)
class OfflineQueries:
    """A node to ask about.

    Attributes:
        setup: settings and machine.
        node: the managers, with the kubelet's devices as far as the ledger knows them.
        ledger: the grants.
        outside: pods that were refused or are left alone, by uid; some of those refused are gone.
        lacking: grants that are not in force in the kernel, by the pod's uid, as the agent found them last.
        notes: sentences on the limits of the answers.
    """

    setup: setup.Setup
    node: Node
    ledger: Ledger
    outside: Mapping[str, UnplacedPod] = field(default_factory=dict)
    lacking: Mapping[str, Unenforced] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def pods(self) -> dict[str, Pod]:
        """All pods that are known, by uid."""
        return {uid: each.pod for uid, each in self.outside.items()} | {
            uid: record.pod for uid, record in self.ledger.pods.items()
        }

    def find(self, name: str) -> Pod:
        """The pod of a uid, a namespace/name, or a name that only one pod has; raises SettingsError."""
        pods = self.pods()
        found = [pod for uid, pod in pods.items() if name in (uid, pod.key, pod.name)]
        there = [pod for pod in found if not self.gone(pod)]
        if found and len({pod.key for pod in found}) == 1 and len(there) <= 1:  # created again under the same name
            return there[0] if there else max(found, key=lambda pod: pod.created)
        found = there or found
        if len(found) == 1:
            return found[0]
        if not found:
            known = ", ".join(sorted(pod.key for pod in pods.values())[:20]) or "none"
            raise SettingsError(
                "POD", f'no pod "{name[:80]}" is known here; known are {known}; of a pod that is not there yet, name '
                "the --manifest"
            )  # fmt: skip
        several = ", ".join(f"{pod.key} ({pod.uid})" for pod in sorted(found, key=lambda each: each.key))
        raise SettingsError("POD", f'"{name[:80]}" names several pods; give namespace/name or uid: {several}')

    def unfollowed(self, pod: Pod) -> bool:
        """Return True if an annotation of the pod, or of its namespace, cannot be followed as it is written."""
        return bool(checked_settings(self.node, pod).problems)

    def gone(self, pod: Pod) -> bool:
        """Return True if the pod was refused, and has ended since."""
        return pod.uid in self.outside and self.outside[pod.uid].gone

    def explain(
        self, pod: Pod, *, hypothetical: bool = False, claims: bool = False, search: bool = True
    ) -> Explanation:
        """One pod explained; `claims`: it uses DRA claims."""
        standing = self.outside[pod.uid].standing if pod.uid in self.outside else PodStanding()
        if pod.uid not in self.outside:
            standing = replace(standing, exempt=self.exempt(pod))
        found = explain(
            self.node, self.ledger, pod, settings=checked_settings(self.node, pod), search=search,
            standing=replace(standing, hypothetical=hypothetical, claims=claims, room=self.setup.allocatable()),
        )  # fmt: skip
        said = (
            "the pod is gone; all numbers are those of now" if self.gone(pod) else note(self.lacking.get(pod.uid, {}))
        )
        return replace(found, notes=(said, *found.notes)) if said else found

    def exempt(self, pod: Pod) -> str:
        """Return why a pod is exempt, as the agent decides it; its own namespace is known to the agent alone."""
        record = self.ledger.pods.get(pod.uid)
        if record is not None and record.affinity:
            return ""
        return self.setup.exemptions(static=record is None).why(pod)


def open_queries(state: Path, config: Path | None, root: str | None, *, needs_ledger: bool = True) -> OfflineQueries:
    """Read the state folder.

    Args:
        state: the agent's --state-dir.
        config: its configuration file; None for that of the agent's own pod if this is one, else for the defaults.
        root: its machine, None for this one.
        needs_ledger: without a saved ledger there is nothing to ask about; else an empty node is taken.

    Raises:
        SettingsError, MalformedError: the input is wrong, or the ledger is of another machine.
        HostError: the machine or the ledger cannot be read, or there is none.
    """
    store = Checkpoint(state / "checkpoint.json")
    saved = saved_in(store) if needs_ledger else store.load()
    found = as_it_was(saved, setup_of(state, config, root))
    if saved is None:
        empty = f"no ledger in {state}: an empty node is taken"
        return OfflineQueries(found, found.node, found.node.start(), notes=(empty, *found.remarks))
    ledger, notes = carried(saved, found)
    node = DeviceTracker(found.node, reported_before(ledger, found.node)).node(found.node)
    limits = node.barred()
    notes = (*notes, *found.remarks, *([limits] if limits else []))
    outside = unplaced.load(state)
    return OfflineQueries(found, node, ledger, outside.pods, outside.unenforced, notes)


@dataclass(frozen=True, slots=True)
class Manifests:
    """The pods of a manifest.

    Attributes:
        pods: (pod, whether it uses DRA claims); of each template of a workload the first of its pods.
        notes: what was left out, or may be a typing error; sentences.
        wrong: documents that cannot be read, one sentence each.
        odd: of the notes, those on what may be a typing error.
    """

    pods: tuple[tuple[Pod, bool], ...]
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


def manifests(path: Path) -> Manifests:
    """The pods of a manifest file or folder, or of standard input ("-").

    Raises:
        SettingsError: it is not there, or no pod can be read in it.
    """
    if path != STDIN and not path.is_file() and not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "is not there"
        raise SettingsError("--manifest", f"{path} {what}; name a manifest, or a folder of them")
    folder = read_folder(path) if path != STDIN else ManifestFolder()
    if folder.pods and not folder.wrong:
        pods = tuple((folder.resized.get(pod.uid, pod), pod.uid in folder.claimants) for pod in folder.pods)
        return Manifests(pods, folder.odd, odd=folder.odd)
    found = read_workloads([path])
    wrong = tuple(map(str, found.wrong))
    items = {role_of(each): each for each in reversed(found.items)}
    if not items:
        raise SettingsError("--manifest", "; ".join(wrong[:3]) or f"{path}: {found.nothing()}")
    pods = tuple((each.pod, each.claims) for each in reversed(items.values()))
    return Manifests(pods, found.sentences(), wrong, found.odd)
