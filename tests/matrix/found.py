"""What the pairs found as they were run: defects of the agent, mended since but for those that are OPEN."""

from __future__ import annotations

from collections.abc import Mapping

_FIRST = "A pod that NRI's own question brought before the watch did carried no word of ours until the next start."
_RACE = (
    "A container's cgroup could be looked at before its name had the engine's lock: it was taken for nobody's, and "
    "put on the shared pool for a moment, with its pod's CPUs idle."
)
_ROOM = "Pods that a full disk had kept out stayed out when the first save to work was that of another pod's end."
_KERNEL = "A pod was told that it has its CPUs while the kernel refused every write, and before its set was written."
_GONE = (
    "An answer of 422 counted as a pod that is gone: what a pod had lost was never told. Later: where annotations "
    "were answered with 422, the condition was told without them, and they were never tried again."
)
_DISK = "A resize that came while the disk was full was never followed."
_AGAIN = (
    "A word that came true again before the watch showed that it had been taken back was not told again: the pod's "
    "last known body carried it."
)
_EARLY = (
    "A pod that ran before it was seen was told that it has its CPUs just before its containers' names were known."
)
_NOBODY = (
    "A pod that left the API while its processes run on is in no list: with the ledger lost as well, nobody knows "
    "it, and the first complete list put its containers on the shared pool."
)
_FLIGHT = (
    "A word that was taken back and came true again while the first of the two was on its way to the API server was "
    "not told again: the pod kept the wrong one."
)

_NAMED = (
    "A container got its name from the runtime, and its set from the answer, while a plan was carried out that knew "
    "it without a name: the rest of the plan put it back on the pool and its pod's unclaimed CPUs for a moment."
)

_QUEUED = (
    "That a pod had just lost a CPU waited behind the first words of all that arrived in its namespace: until then "
    "it was told to have it."
)
_OLDER = (
    "In the lab, where fourteen of the pairs run on a real node: an older copy of the checkpoint gave CPUs to pods "
    "that had left since, and put those who run there on the shared pool (a full disk with a resize in flight)."
)
_REGISTERED = (
    "In the lab, by a sampler of every container's CPUs, while the agent was killed again and again: a container ran "
    "on CPUs that another had been given. What could do that: the runtime was answered with the sets of what runs "
    "before the agent that it registered had made others leave them, and a plan went on without a write that it had "
    "skipped."
)
_OURSELVES = (
    "In the table itself, by breaking the agent on purpose: on a busy machine a pod was force-deleted, and its "
    "processes ended, before the agent had heard of either, so that nothing was tried; and a plugin that was late "
    "for the runtime's first question was never asked again. Less memory took back what its row had made of the "
    "machine: a CPU came online in the middle of a pair, and the container that had lost it was expected to have it."
)

_BACK = (
    "A CPU came back while a plan was carried out that had been made without it: its pod's cgroup was first written "
    "without it, so that the container lost it for a moment."
)

FOUND: Mapping[tuple[str, str], str] = {
    ("agent killed", "namespace read fails"): _RACE,
    ("agent killed", "podresources away"): _RACE,
    ("agent killed", "kernel refuses writes"): _KERNEL,
    ("agent killed", "NRI slow"): _KERNEL,
    ("checkpoint lost", "API slow"): _EARLY,
    ("checkpoint lost", "API away"): _EARLY,
    ("checkpoint lost", "API errors"): _EARLY,
    ("checkpoint lost", "pod force-deleted"): _NOBODY,
    ("disk read-only", "NRI away"): _AGAIN,
    ("daemon-reload", "kernel refuses writes"): _AGAIN,
    ("checkpoint lost", "resize in flight"): _KERNEL,
    ("older checkpoint", "agent killed"): _RACE,
    ("node rebooted", "namespace read fails"): _RACE,
    ("node rebooted", "API slow"): _NAMED,
    ("node rebooted", "watch stale"): _NAMED,
    ("node rebooted", "podresources away"): _NAMED,
    ("node rebooted", "garbage annotations"): _NAMED,
    ("huge pages late", "namespace read fails"): _RACE,
    ("disk full", "pod force-deleted"): _ROOM,
    ("disk full", "resize in flight"): _DISK,
    ("disk read-only", "resize in flight"): _DISK,
    ("CPU offline", "API errors"): _GONE,
    ("CPU offline", "300 pods arrive"): _QUEUED,
    ("disk full", "podresources away"): _FLIGHT,
    ("disk read-only", "API errors"): _FLIGHT,
    ("daemon-reload", "NRI away"): _FLIGHT,
    ("daemon-reload", "resize in flight"): _FLIGHT,
    ("CPU offline", "API away"): _FLIGHT,
    ("CPU offline", "NRI slow"): _FLIGHT,
    ("CPU offline", "NRI away"): _BACK,
    ("huge pages late", "resize in flight"): _FLIGHT,
    ("clock behind", "watch stale"): _FLIGHT,
    ("clock ahead", "resize in flight"): _NAMED,
}
ELSEWHERE = (
    f"Beside the pairs, by the first test of the facade: {_FIRST[0].lower()}{_FIRST[1:]}",
    _OURSELVES,
    _OLDER,
    _REGISTERED,
)
OPEN: frozenset[tuple[str, str]] = frozenset()
"""Pairs whose find is not mended yet."""
