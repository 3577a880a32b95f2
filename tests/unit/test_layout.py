"""Names of cgroups: made as the kubelet and the runtimes make them, and recognised whatever made them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.host.cgroups import Cgroups, layout
from agent.host.cgroups.layout import CgroupDriver, ContainerRuntime
from agent.host.scratch import Layout, Scratch
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from tests.examples import examples
from tests.unit.listings import BURSTABLE, ESCAPED, ID, LISTINGS, NOISE, STATIC, UID, B, C, E, G, I, P, build


@pytest.mark.parametrize("name", LISTINGS)
def test_each_layout_is_recognised(tmp_path: Path, name: str) -> None:
    """Every runtime, driver and version is told by its names alone, among other cgroups of the machine."""
    version, rows = LISTINGS[name]
    build(tmp_path / "fs", version, [*NOISE, *(row[0] for row in rows)])
    cgroups = Cgroups(tmp_path / "fs")
    observed = cgroups.observe()
    assert observed.version == version
    found = [(c.path, c.level, c.qos, c.pod_uid, c.container_id) for c in observed.cgroups]
    expected = {row[0] for row in rows}
    assert sorted(row for row in found if row[0] in expected) == sorted(rows)
    assert {row[0] for row in found} == expected
    assert cgroups.kubepods == rows[0][0]
    assert cgroups.observe() == observed


def test_spec_names() -> None:
    """The name facts of kubelet rule 7.1."""
    systemd, plain = CgroupDriver.SYSTEMD, CgroupDriver.CGROUPFS
    assert layout.cgroup_path(systemd, ("BestEffort", "pod-6c1a4e95-6bb6")) == (
        "/BestEffort.slice/BestEffort-pod_6c1a4e95_6bb6.slice"
    )
    assert layout.cgroup_path(systemd, ("a-b", "kubepods")) == "/a_b.slice/a_b-kubepods.slice"
    assert layout.cgroup_path(plain, layout.pod_parts((), E, UID)) == f"/kubepods/besteffort/pod{UID}"
    assert layout.cgroup_path(systemd, layout.pod_parts((), B, UID)) == f"{BURSTABLE}{ESCAPED}.slice"


SETUPS = [
    *(
        Layout(version, driver, runtime)
        for version in (1, 2)
        for driver in CgroupDriver
        for runtime in ContainerRuntime
    ),
    *(Layout(version, CgroupDriver.SYSTEMD, ContainerRuntime.CRIO, inner=True) for version in (1, 2)),
    *(Layout(version, driver, root=("kubelet",)) for version in (1, 2) for driver in CgroupDriver),
    Layout(2, CgroupDriver.SYSTEMD, root=("a-b", "c")),
]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_what_is_made_is_recognised(tmp_path: Path, setup: Layout) -> None:
    """A scratch tree of any setup is observed with the same pods and containers, sandbox and monitor apart."""
    tree = Scratch.create(tmp_path / "s", cpus=CpuSet.of(0, 1), nodes=NodeSet.of(0), setup=setup)
    for uid, qos in ((UID, G), (STATIC, B), ("other", E)):
        tree.add_pod(uid, qos)
        tree.add_container(uid, ID)
        tree.add_monitor(uid, ID)
    observed = Cgroups(tree.folder, kernel=tree.kernel).observe()
    pods = {(c.pod_uid, c.qos) for c in observed.cgroups if c.level is P}
    assert pods == {(UID, G), (STATIC, B), ("other", E)}
    containers = sorted(c.container_id for c in observed.cgroups if c.level is C)
    assert containers == [ID] * 3 + [f"conmon-{ID}"] * 3
    assert all(c.populated for c in observed.cgroups if c.level in (P, C, I))
    assert len([c for c in observed.cgroups if c.level is I]) == (3 if setup.inner else 0)
    for uid in (UID, STATIC, "other"):
        tree.remove_pod(uid)
    assert [c for c in Cgroups(tree.folder).observe().cgroups if c.pod_uid or c.populated] == []


@settings(max_examples=examples(100), deadline=None)
@given(
    uid=st.from_regex(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True
    ),
    qos=st.sampled_from(Qos),
    driver=st.sampled_from(CgroupDriver),
    root=st.sampled_from([(), ("kubelet",), ("x-y", "z")]),
)
def test_any_uid_survives_its_name(uid: str, qos: Qos, driver: CgroupDriver, root: tuple[str, ...]) -> None:
    """From uid to folder to uid is the identity for whatever the API calls a uid."""
    *_, parent, name = layout.cgroup_path(driver, layout.pod_parts(root, qos, uid)).split("/")
    assert layout.uid_of(parent, name) == uid
    assert layout.qos_of(parent, name) is None
