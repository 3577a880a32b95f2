"""A pod's uid and the names of its cgroups agree, or the manifest is refused; nobody leaves his own cgroups.

Finding 34.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from agent.host.cgroups import Cgroups, layout
from agent.host.cgroups.kernel import RealKernel
from agent.host.cgroups.layout import CgroupDriver
from agent.host.manifests import read_folder
from agent.host.scratch import Scratch
from agent.host.standin import container_id
from agent.model.cgroup import Cause, Write
from agent.model.idset import CpuSet, NodeSet
from agent.model.pod import Qos
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE

POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: {uid}}}
spec: {{containers: [{{name: app, image: x}}]}}
"""


def test_a_manifest_whose_cgroups_could_not_be_told_is_refused(tmp_path: Path) -> None:
    """One sentence that names the field and says what to do; the pods beside it are served."""
    (tmp_path / "bad.yaml").write_text(POD.format(name="bad", uid="db_1"), "utf-8")
    (tmp_path / "good.yaml").write_text(POD.format(name="good", uid="db-1"), "utf-8")
    found = read_folder(tmp_path)
    assert [pod.name for pod in found.pods] == ["good"]
    (wrong,) = found.wrong
    assert (wrong.file, 'metadata.uid: "db_1" has a "_"' in str(wrong)) == ("bad.yaml", True)


def test_under_cgroupfs_a_uid_is_its_folders_name() -> None:
    """Only systemd writes dashes as "_": what cgroupfs shows is taken as it is, or a pod would be another one."""
    for uid in ("a_b", "a-b"):
        *_, parent, name = layout.cgroup_path(CgroupDriver.CGROUPFS, layout.pod_parts((), Qos.BURSTABLE, uid)).split(
            "/"
        )
        assert layout.uid_of(parent, name) == uid


@pytest.mark.parametrize(
    "path", ["/kubepods/../other", "/..", "/kubepods/pod/../../other", "/kubepods//other", "/./x"]
)
def test_no_path_leads_out_of_the_hierarchy(tmp_path: Path, path: str) -> None:
    """The kernel's side refuses it too, not only the layer above, which knows the paths that it has seen."""
    for each in ("tree/kubepods/pod", "tree/other", "other"):
        (tmp_path / each).mkdir(parents=True)
    for each in ("other", "tree/other", "tree"):
        (tmp_path / each / "cpuset.cpus").write_text("0-7\n", "utf-8")
    with pytest.raises(OSError, match="not the path of a cgroup") as error:
        RealKernel().write(str(tmp_path / "tree"), path, "cpuset.cpus", "3")
    assert error.value.errno == errno.EINVAL
    assert (tmp_path / "other/cpuset.cpus").read_text("utf-8") == "0-7\n"
    assert (tmp_path / "tree/other/cpuset.cpus").read_text("utf-8") == "0-7\n"


class Missing:
    """A kernel that has no such file."""

    def write(self, hierarchy: str, path: str, file: str, value: str) -> None:
        """As Kernel."""
        raise OSError(errno.ENOENT, "no such file", f"{hierarchy}{path}/{file} ({value})")


def test_a_missing_file_of_a_living_cgroup_is_no_vanished_cgroup(tmp_path: Path) -> None:
    """A pod whose cgroup is there has not gone: its write failed, which must be told and tried again."""
    tree = Scratch.create(tmp_path, cpus=CpuSet.parse("0-3"), nodes=NodeSet.of(0))
    path = tree.add_pod("db", Qos.GUARANTEED)
    cgroups = Cgroups(tmp_path, kernel=Missing())
    assert any(each.path == path for each in cgroups.observe().cgroups)
    write = Write(path, "cpuset.cpus", "1", "", Cause.GRANT)
    (there,) = cgroups.apply((write,))
    assert there.error == "ENOENT"
    tree.remove_pod("db")
    (gone,) = cgroups.apply((write,))
    assert gone.error != "ENOENT"


def test_a_status_that_names_anothers_container_gives_it_no_cpus(tmp_path: Path) -> None:
    """Another pod's word on a container's name does not put a side container onto its pod's exclusive CPUs."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("victim", container(), container("side", cpu="500m")))
    world.see(manifest("liar", container(), created=1))
    own = world.effective("victim")
    assert world.holds("victim") == own
    world.engine.containers_seen({container_id("victim", "side"): ("liar", "app")})
    world.engine.reconcile()
    assert set(CpuSet.parse(world.effective("victim", "side"))).isdisjoint(CpuSet.parse(own))


def test_a_pipe_in_the_place_of_a_cgroup_holds_nobody_up(tmp_path: Path) -> None:
    """Only folders are opened on the way: anything else is refused at once, and never waited for."""
    (tmp_path / "tree/kubepods").mkdir(parents=True)
    os.mkfifo(tmp_path / "tree/kubepods/pod")
    failed = list[OSError]()

    def write() -> None:
        try:
            RealKernel().write(str(tmp_path / "tree"), "/kubepods/pod", "cpuset.cpus", "3")
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert [error.errno for error in failed] == [errno.ENOTDIR]
