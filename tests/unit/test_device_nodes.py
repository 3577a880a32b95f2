"""Device files of PCI functions, from small sysfs trees as kernels lay them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.host.device_nodes import DeviceFiles, DeviceNode, variable
from agent.host.files import HostFiles

ADDRESS = "0000:3b:00.1"


class Tree:
    """A sysfs with one PCI function."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.device = root / "sys/devices/pci0000:3a" / ADDRESS
        self.device.mkdir(parents=True)
        self.link(f"sys/bus/pci/devices/{ADDRESS}", self.device)

    def link(self, path: str, target: Path) -> None:
        """A link to a folder that is made if it is missing."""
        target.mkdir(parents=True, exist_ok=True)
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(target, place.parent))

    def driver(self, name: str) -> None:
        """Bind a driver."""
        self.link(f"sys/devices/pci0000:3a/{ADDRESS}/driver", self.root / "sys/bus/pci/drivers" / name)

    def node(self, folder: str, numbers: str, name: str = "", *, block: bool = False) -> None:
        """A folder with a device number, below the function unless it starts with sys/."""
        place = self.root / folder if folder.startswith("sys/") else self.device / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / "dev").write_text(f"{numbers}\n")
        (place / "uevent").write_text(f"MAJOR=1\nDEVNAME={name}\n" if name else "MAJOR=1\n")
        if block:
            (place / "subsystem").symlink_to("../../../../../../class/block")

    def found(self) -> tuple[list[tuple[str, str, int, int]], str]:
        """What is found now: (path, kind, major, minor), and the hint."""
        usable = DeviceFiles(HostFiles(self.root)).of(ADDRESS)
        return [(each.path, each.kind, each.major, each.minor) for each in usable.nodes], usable.hint


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A function without a driver."""
    return Tree(tmp_path)


def test_vfio_gives_the_group_and_the_container(tree: Tree) -> None:
    """Bound to vfio-pci: both files that a user of VFIO opens."""
    tree.driver("vfio-pci")
    tree.link(f"sys/devices/pci0000:3a/{ADDRESS}/iommu_group", tree.root / "sys/kernel/iommu_groups/17")
    tree.node("sys/class/vfio/17", "243:3", "vfio/17")
    tree.node("sys/class/misc/vfio", "10:196", "vfio/vfio")
    assert tree.found() == ([("/dev/vfio/17", "c", 243, 3), ("/dev/vfio/vfio", "c", 10, 196)], "")


def test_vfio_without_an_iommu_and_with_the_newer_interface(tree: Tree) -> None:
    """A noiommu group has a name of its own; kernels without groups have a file per device, and iommufd."""
    tree.driver("mlx5_vfio_pci")
    tree.node("vfio-dev/vfio2", "511:2", "vfio/devices/vfio2")
    assert tree.found()[0] == []
    tree.node("sys/class/misc/iommu", "10:125", "iommu")
    assert tree.found()[0] == [("/dev/iommu", "c", 10, 125), ("/dev/vfio/devices/vfio2", "c", 511, 2)]
    tree.link(f"sys/devices/pci0000:3a/{ADDRESS}/iommu_group", tree.root / "sys/kernel/iommu_groups/0")
    tree.node("sys/class/vfio/noiommu-0", "243:0", "vfio/noiommu-0")
    tree.node("sys/class/misc/vfio", "10:196", "vfio/vfio")
    assert [path for path, *_ in tree.found()[0]] == ["/dev/vfio/noiommu-0", "/dev/vfio/vfio"]


def test_a_graphics_card(tree: Tree) -> None:
    """The card and its render node; connectors below it are no files."""
    tree.driver("amdgpu")
    tree.node("drm/card1", "226:1", "dri/card1")
    tree.node("drm/renderD129", "226:129", "dri/renderD129")
    (tree.device / "drm/card1/card1-DP-1").mkdir()
    assert tree.found() == ([("/dev/dri/card1", "c", 226, 1), ("/dev/dri/renderD129", "c", 226, 129)], "")


def test_an_nvme_controller_with_its_namespaces(tree: Tree) -> None:
    """Controller, block device and passthrough file; other folders of the controller are none."""
    tree.driver("nvme")
    tree.node("nvme/nvme3", "240:3", "nvme3")
    tree.node("nvme/nvme3/nvme3n1", "259:7", "nvme3n1", block=True)
    tree.node("nvme/nvme3/ng3n1", "239:5", "ng3n1")
    tree.node("nvme/nvme3/hwmon4", "1:1")
    assert tree.found()[0] == [
        ("/dev/ng3n1", "c", 239, 5), ("/dev/nvme3", "c", 240, 3), ("/dev/nvme3n1", "b", 259, 7),
    ]  # fmt: skip


def test_rdma_needs_the_connection_manager_too(tree: Tree) -> None:
    """Verbs of a network adapter: usable although its interface is not moved."""
    tree.driver("mlx5_core")
    tree.node("infiniband_verbs/uverbs0", "231:192", "infiniband/uverbs0")
    tree.node("sys/class/misc/rdma_cm", "10:122", "infiniband/rdma_cm")
    (tree.device / "net/ens1f0").mkdir(parents=True)
    assert [path for path, *_ in tree.found()[0]] == ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0"]


def test_a_name_that_the_kernel_does_not_give_is_the_usual_one(tree: Tree) -> None:
    """Without DEVNAME, and with one that leads out of /dev."""
    tree.driver("amdgpu")
    tree.node("drm/card0", "226:0")
    assert tree.found()[0] == [("/dev/dri/card0", "c", 226, 0)]
    tree.node("drm/card0", "226:0", "../etc/passwd")
    assert tree.found()[0] == [("/dev/dri/card0", "c", 226, 0)]


@pytest.mark.parametrize(
    ("driver", "folder", "hint"),
    [
        ("", "", "no driver is bound to 0000:3b:00.1, so it has no device file"),
        ("iavf", "net/ens1f0v1", "its network interface ens1f0v1 has no device file; a CNI plugin has to move it"),
        ("nvidia", "power", "the driver nvidia of 0000:3b:00.1 shows no device file in sysfs"),
        ("vfio-pci", "vfio-dev/vfio0", "the driver vfio-pci of 0000:3b:00.1 shows no device file in sysfs"),
    ],
)
def test_s22_a_device_without_a_file_is_a_hint(tree: Tree, driver: str, folder: str, hint: str) -> None:
    """A device of ours that cannot be used through a file is called a hint, with the reason (S22)."""
    if driver:
        tree.driver(driver)
        (tree.device / folder).mkdir(parents=True)
    nodes, said = tree.found()
    assert (nodes, said.startswith(hint)) == ([], True)


@pytest.mark.parametrize("address", ["0000:99:00.0", "../../../etc", "", "GPU-1234"])
def test_an_address_that_is_none(tree: Tree, address: str) -> None:
    """Gone meanwhile, or no address at all: said, and nothing outside the folder of devices is read."""
    usable = DeviceFiles(HostFiles(tree.root)).of(address)
    assert (usable.nodes, usable.hint) == ((), f"{address} is no PCI function of this machine now")


@pytest.mark.parametrize("numbers", ["", "226", "226:x", "-1:2", "226:1:2", "99999999999:1"])
def test_numbers_that_are_none(tree: Tree, numbers: str) -> None:
    """A malformed dev file is no file."""
    tree.driver("amdgpu")
    tree.node("drm/card1", numbers, "dri/card1")
    tree.node("drm/renderD129", "226:129", "dri/renderD129")
    assert DeviceFiles(HostFiles(tree.root)).of(ADDRESS).nodes == (DeviceNode("/dev/dri/renderD129", "c", 226, 129),)


def test_the_variable_is_the_sriov_plugins() -> None:
    """Capitals, and _ for everything else."""
    assert variable("numalign.io/nic") == "PCIDEVICE_NUMALIGN_IO_NIC"
    assert variable("intel.com/sriov-net_A.1") == "PCIDEVICE_INTEL_COM_SRIOV_NET_A_1"
