"""systemd reads its units again while pods run: whatever it does to cpusets, the kernel soon has what the books say.

systemd 257 sets the cpusets of its units anew then (https://github.com/systemd/systemd/issues/40438). Asked of the
cells with such a systemd (`cells.py`); `test_faults.py` has the same fault on the lab's own machine.
"""

from __future__ import annotations

import time

from tests.lab import agent, report
from tests.lab.cluster import Lab
from tests.lab.driving import PATIENCE
from tests.lab.pods import container, pod, resources
from tests.lab.sampling import Sampler

RELOADS = 3
LATER, REPAIRED = 5.0, 60.0
"""Seconds after which systemd has written what it means to; within which all is as before."""


def test_what_systemd_resets_is_repaired(clean: Lab, sampler: Sampler | None) -> None:
    """Three reloads, with a pinned pod and one that shares: after each both have the same sets as before."""
    if sampler is not None:
        sampler.excused = "systemd sets cpusets anew"
    node = clean.numalign
    sharing = container(resources=resources("100m", "32Mi", limits={"memory": "48Mi"}))
    for body in (pod("pinned", cpu="2"), pod("sharing", sharing)):
        clean.create(body, node, wait=True)
    clean.wait_enforced(node, "pinned", "sharing")
    before = clean.kernel(node)
    assert before["pinned"]["c"].cpus == clean.assigned(node)["pinned"]["c"].cpus
    for _ in range(RELOADS):
        node.run("systemctl daemon-reload")
        time.sleep(LATER)
        deadline = time.monotonic() + REPAIRED
        while (now := clean.kernel(node)) != before and time.monotonic() < deadline:
            time.sleep(PATIENCE)
        assert now == before
    repairs = sum("repaired" in line for line in agent.log(node, 400).splitlines())
    report.record("repairs that numalign told of after three reloads of systemd", repairs)
