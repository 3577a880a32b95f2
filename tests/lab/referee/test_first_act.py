"""Before the first instruction: what a container finds when it starts, with NRI and without."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter

import pytest

from tests.lab import agent
from tests.lab.cluster import Lab, Object
from tests.lab.referee.test_kernel import settings
from tests.lab.report import record
from tests.referee.ground import Ground
from tests.referee.guest_node import TELL

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("alone")]

AT_ONCE, TIMES = 14, 100
"""Containers of a pod, one CPU each: all that the guest has besides the reserved ones; and how often it is tried."""
SAME = 2
"""Pods whose container of the same name may be late."""
WINDOWS = 20
LIMIT = 0.2
"""Seconds that the runtime may wait (safety rule S9); a bucket of the histogram, too."""
WATCH = (
    "now() { while read -r key value; do case $key in Cpus_allowed_list:) cpus=$value;; esac; done "
    "</proc/self/status; "
    "read -r up _ </proc/uptime; }\n"
    "now; first=$cpus; began=$up; n=0\n"
    "while [ $cpus = $first ] && [ $n -lt 600 ]; do sleep 0.02; n=$((n+1)); now; done\n"
    "echo $first $cpus $began $up >/dev/termination-log"
)
"""Looks until its CPUs change: first and last set, and the guest's clock at both."""


def pod(name: str, containers: int, command: str) -> Object:
    """A Guaranteed pod; every container runs a command and ends."""
    each = {"command": ["sh", "-c", command], "resources": {"limits": {"cpu": "1", "memory": "16Mi"}}}
    made = [{"name": f"c{number}", **each} for number in range(containers)]
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": made}}


def _answers(metrics: dict[str, float]) -> str:
    """Of the agent that runs now: how many containers were answered for within the limit, and the mean."""
    name, label = "numalign_operation_seconds", 'operation="CreateContainer"'
    count, total = metrics[f"{name}_count{{{label}}}"], metrics[f"{name}_sum{{{label}}}"]
    within = metrics[f'{name}_bucket{{le="{LIMIT}",{label}}}']
    return f"{within:.0f} of {count:.0f}, on average {1000 * total / count:.0f} ms"


def ended(lab: Lab, name: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """What its containers were granted, and what they said; then it is deleted."""
    done = lab.wait_pod(name, lambda each: each["status"].get("phase") in ("Succeeded", "Failed"), seconds=300)
    said = {
        each["name"]: each["state"]["terminated"].get("message", "").strip()
        for each in done["status"]["containerStatuses"]
    }
    granted = json.loads(done["metadata"]["annotations"]["numalign.io/assignment"])["containers"]
    lab.delete(name)
    lab.wait_gone(done)
    return granted, said


@pytest.mark.timeout(1800)
def test_the_first_act_of_a_container_is_where_it_was_granted(lab: Lab, ours: Ground) -> None:
    """With NRI a container whose first act is to print its CPUs and nodes prints the granted ones, every time.

    A container that the agent says it could not answer for in time counts for neither side, and another one is tried
    in its place: in an emulated machine 150 ms pass now and then without the agent running at all. One in ten, or the
    same container of several pods, is no accident.
    """
    ours.ready(settings())
    run, answered, pods = int(time.time()), 0, 0
    late = Counter[str]()
    wrong: list[str] = []
    while answered < TIMES:
        name, pods = f"first-{run}-{pods}", pods + 1
        lab.create(pod(name, min(AT_ONCE, TIMES - answered), TELL), ours.node)
        granted, said = ended(lab, name)
        without = agent.late(ours.node, name)
        late.update(without)
        assert late.total() <= TIMES // 10, f"of {pods} pods these started without their sets: {late}"
        assert not [each for each, times in late.items() if times > SAME], f"late again and again: {late}"
        for container, text in said.items():
            grant = granted[container]
            if container not in without and text.split() != [grant["cpus"], grant["mems"]]:
                wrong.append(f"{name}/{container} printed {text!r}, granted {grant}")
        answered += len(said.keys() - without)
    record("first act with NRI: printed what was granted", f"{answered - len(wrong)} of {answered}")
    record("first act with NRI: answered too late, and said so", late.total())
    record(f"answers to containerd within {LIMIT:g} s (S9)", _answers(agent.metrics(ours.node)))
    assert not wrong, "\n".join(wrong)


def test_the_window_without_nri_is_measured(lab: Lab, ours: Ground) -> None:
    """enforcement: cgroup: a container starts on the shared pool; how long until it is where it was granted."""
    ours.ready(settings())
    ours.follow({"enforcement": "cgroup"})
    windows: list[float] = []
    at_start = 0
    while len(windows) + at_start < WINDOWS:
        name = f"window-{len(windows) + at_start}"
        lab.create(pod(name, 4, WATCH), ours.node)
        granted, said = ended(lab, name)
        for container, text in said.items():
            first, last, began, changed = text.split()
            if first == granted[container]["cpus"]:
                at_start += 1  # written between its creation and its start
                continue
            assert last == granted[container]["cpus"], f"{name}/{container}: {text}, granted {granted[container]}"
            windows.append(float(changed) - float(began))
    shown = (
        f"{min(windows):.2f} to {max(windows):.2f} s, median {statistics.median(windows):.2f} s"
        if windows
        else "none"
    )
    record("first act without NRI: until it is where it was granted", shown)
    record("first act without NRI: right at once", f"{at_start} of {len(windows) + at_start}")
