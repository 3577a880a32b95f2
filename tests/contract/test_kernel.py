"""What a kernel does with writes: the same cases on the scratch trees and on the real hierarchies.

The expectations are what Linux 6.1 (v1 and v2), 6.12 and 7.3 answer (`python -m tests.guests contract`).
"""

from __future__ import annotations

import pytest

from tests.contract.trees import Tree, effective, empties, write

CPUS, MEMS, PROCS = "cpuset.cpus", "cpuset.mems", "cgroup.procs"


def by_version(tree: Tree, v1: str, v2: str) -> str:
    """The expectation for this tree."""
    return v1 if tree.version == 1 else v2


def made(tree: Tree, path: str, cpus: str = "0-1") -> str:
    """A cgroup with CPUs, and node 0."""
    full = tree.make(path)
    assert write(tree, full, CPUS, cpus) == "ok"
    assert write(tree, full, MEMS, "0") == "ok"
    return full


def test_a_fresh_cgroup_asks_for_nothing(tree: Tree) -> None:
    """Its sets are empty; on v2 it inherits what is in force above, on v1 nothing is."""
    path = tree.make("/a")
    assert tree.read(path, CPUS) == tree.read(path, MEMS) == ""
    assert effective(tree, path) == by_version(tree, "", "0-1")
    assert effective(tree, path, "mems") == by_version(tree, "", "0")


@pytest.mark.parametrize(
    ("text", "reads"),
    [("0-1", "0-1"), ("1,0", "0-1"), ("0,1", "0-1"), (" 0 ,1 ", "0-1"), ("0,,1", "0-1"), ("1-1", "1"), ("all", "0-1"),
     ("0-1:1/2", "0"), ("N", "1"), ("0,", "0"), ("ALL", "0-1"), ("All:1/2", "0"), ("0\n1", "0"), ("0,\n1", "0-1"),
     ("0-1:1/2\n1", "0-1"), ("1\n,0", "1"), ("0\0", "0"), ("0-1\0junk", "0-1"), ("0000000000001", "1"), ("1-N", "1")],
)  # fmt: skip
def test_sets_read_back_normalised(tree: Tree, text: str, reads: str) -> None:
    """Whatever way a set is written, it reads back ascending and shortest: texts must not be compared."""
    named = "N" in text or text.lower().startswith("all")
    if named and tree.root == "/sys/fs/cgroup" and effective(tree, "") != "0-1":
        pytest.skip('"N" is the last CPU of the machine, and this one has more than two')
    path = tree.make("/a")
    assert write(tree, path, CPUS, text) == "ok"
    assert tree.read(path, CPUS) == reads
    assert effective(tree, path) == reads


@pytest.mark.parametrize(
    ("file", "text", "refusal"),
    [(CPUS, "x", "EINVAL"), (CPUS, "1-0", "EINVAL"), (CPUS, "-1", "EINVAL"), (CPUS, "0-1:2/1", "EINVAL"),
     (CPUS, "0-1:1/0", "EINVAL"), (CPUS, "allx", "EINVAL"), (CPUS, "0 x", "EINVAL"), (CPUS, "0-1:1/2x", "EINVAL"),
     (CPUS, "4294967295", "EINVAL"), (CPUS, "4294967296", "EOVERFLOW"), (CPUS, "9" * 30, "EOVERFLOW"),
     (MEMS, "4294967296", "EOVERFLOW"), (CPUS, "," * 49253, "E2BIG"), (MEMS, "," * 6245, "E2BIG"),
     (CPUS, "70000", "ERANGE"), (CPUS, "0-70000", "ERANGE"), (MEMS, "70000", "ERANGE"), (MEMS, "1000", "EINVAL")],
)  # fmt: skip
def test_what_is_no_set_is_refused(tree: Tree, file: str, text: str, refusal: str) -> None:
    """Malformed lists and ids that can never be are refused, and nothing changes."""
    path = made(tree, "/a", "0")
    assert write(tree, path, file, text) == refusal
    assert (tree.read(path, CPUS), tree.read(path, MEMS)) == ("0", "0")


def test_a_child_of_an_unset_parent(tree: Tree) -> None:
    """On v1 nothing fits into an empty parent; on v2 it does not matter."""
    tree.make("/a")
    child = tree.make("/a/b")
    assert write(tree, child, CPUS, "0") == by_version(tree, "EACCES", "ok")


def test_a_child_may_not_reach_beyond_its_parent_on_v1(tree: Tree) -> None:
    """v1 refuses with EACCES; v2 remembers the wish, and puts in force what the parent has."""
    made(tree, "/a", "0")
    child = made(tree, "/a/b", "0")
    assert write(tree, child, CPUS, "0-1") == by_version(tree, "EACCES", "ok")
    assert tree.read(child, CPUS) == by_version(tree, "0", "0-1")
    assert effective(tree, child) == "0"


def test_a_parent_may_not_shrink_below_its_child_on_v1(tree: Tree) -> None:
    """v1 refuses with EBUSY until the child has shrunk; v2 takes it from the child."""
    parent, child = made(tree, "/a"), made(tree, "/a/b")
    assert write(tree, parent, CPUS, "0") == by_version(tree, "EBUSY", "ok")
    assert effective(tree, child) == by_version(tree, "0-1", "0")
    assert write(tree, child, CPUS, "0") == "ok"
    assert write(tree, parent, CPUS, "0") == "ok"


def test_a_child_with_nothing_in_common_gets_the_parents_on_v2(tree: Tree) -> None:
    """An empty intersection is no empty set: all of the parent's is in force."""
    parent, child = made(tree, "/a"), made(tree, "/a/b", "1")
    if tree.version == 1:
        assert write(tree, parent, CPUS, "0") == "EBUSY"
        return
    assert write(tree, parent, CPUS, "0") == "ok"
    assert (tree.read(child, CPUS), effective(tree, child)) == ("1", "0")
    assert write(tree, parent, CPUS, "0-1") == "ok"
    assert effective(tree, child) == "1"


def test_growing_a_parent_leaves_the_child(tree: Tree) -> None:
    """A child's own set stays when its parent grows."""
    parent, child = made(tree, "/a", "0"), made(tree, "/a/b", "0")
    assert write(tree, parent, CPUS, "0-1") == "ok"
    assert effective(tree, child) == "0"


def test_s17_a_populated_cgroup_cannot_be_emptied(tree: Tree) -> None:
    """With a process in it, emptying is refused with ENOSPC before Linux 7.0 and on v1; without, it is taken.

    From 7.0 on the process may use all that the parent has.
    """
    path = made(tree, "/a")
    pid = tree.spawn()
    assert write(tree, path, PROCS, str(pid)) == "ok"
    assert write(tree, path, CPUS, "1") == "ok"
    for file, keeps in ((CPUS, "1"), (MEMS, "0")):
        assert write(tree, path, file, "") == ("ok" if empties(tree) else "ENOSPC")
        assert tree.read(path, file) == ("" if empties(tree) else keeps)
    assert effective(tree, path) == ("0-1" if empties(tree) else "1")
    assert write(tree, path, CPUS, "0") == "ok"
    tree.end(pid)
    empty = made(tree, "/b")
    assert write(tree, empty, CPUS, "") == "ok"
    assert tree.read(empty, CPUS) == ""
    assert effective(tree, empty) == by_version(tree, "", "0-1")


def test_s17_neither_can_one_with_processes_below(tree: Tree) -> None:
    """Processes further down count: ENOSPC on v2 before 7.0; on v1 the child's own set is in the way (EBUSY)."""
    parent, child = made(tree, "/a"), made(tree, "/a/b")
    pid = tree.spawn()
    assert write(tree, child, PROCS, str(pid)) == "ok"
    assert write(tree, parent, CPUS, "") == by_version(tree, "EBUSY", "ok" if empties(tree) else "ENOSPC")
    tree.end(pid)


def test_processes_do_not_enter_an_unset_cgroup_on_v1(tree: Tree) -> None:
    """v1 wants both sets first (ENOSPC); v2 inherits."""
    path = tree.make("/a")
    pid = tree.spawn()
    assert write(tree, path, PROCS, str(pid)) == by_version(tree, "ENOSPC", "ok")
    assert write(tree, path, CPUS, "0") == "ok"
    assert write(tree, path, PROCS, str(pid)) == by_version(tree, "ENOSPC", "ok")
    assert write(tree, path, MEMS, "0") == "ok"
    assert write(tree, path, PROCS, str(pid)) == "ok"
    assert tree.read(path, PROCS) == str(pid)
    tree.end(pid)


@pytest.mark.parametrize(("text", "refusal"), [("abc", "EINVAL"), ("-1", "EINVAL"), ("99999999", "ESRCH")])
def test_what_is_no_process_is_refused(tree: Tree, text: str, refusal: str) -> None:
    """Garbage and processes that do not exist are told apart."""
    assert write(tree, made(tree, "/a"), PROCS, text) == refusal


def test_what_is_in_force_cannot_be_written(tree: Tree) -> None:
    """The effective set is the kernel's own; a file that does not exist is not there."""
    path = made(tree, "/a")
    file = "cpuset.cpus.effective" if tree.version == 2 else "cpuset.effective_cpus"
    assert write(tree, path, file, "0") == "EINVAL"
    assert write(tree, path, "cpuset.nonsense", "0") == "ENOENT"
    assert write(tree, path + "/gone", CPUS, "0") == "ENOENT"


def test_cgroups_in_use_cannot_be_removed(tree: Tree) -> None:
    """A child or a process keeps a cgroup in place (EBUSY)."""
    parent, child = made(tree, "/a"), made(tree, "/a/b")
    assert tree.drop(parent) == "EBUSY"
    assert tree.drop(child) == "ok"
    assert tree.drop(parent) == "ok"


def test_quota_texts(tree: Tree) -> None:
    """A quota is a number of at least 1000 us, or none: -1 on v1, max on v2.

    v1 reads one integer as C writes it; v2 a word and a period, and leaves alone what it does not understand.
    """
    path = tree.make("/a")
    file = by_version(tree, "cpu.cfs_quota_us", "cpu.max")
    none = by_version(tree, "-1", "max 100000")
    assert tree.read(path, file) == none
    assert write(tree, path, file, "50000") == "ok"
    assert tree.read(path, file) == by_version(tree, "50000", "50000 100000")
    for text in ("500", "x", "999999999999999", by_version(tree, "50000 100000", "maxi"), "-x"):
        assert write(tree, path, file, text) == "EINVAL", text
    taken = {1: {"0xc350": "50000", "-5": "-1"}, 2: {
        "20000 50000": "20000 50000", "30000 max": "30000 50000", "max max max": "max 50000",
        "50000 100000 junk": "50000 100000", "60000,100000": "60000 100000", "70000us": "70000 100000",
    }}  # fmt: skip
    for text, reads in taken[tree.version].items():
        assert write(tree, path, file, text) == "ok", text
        assert tree.read(path, file) == reads, text
    assert write(tree, path, file, none) == "ok"
    assert tree.read(path, file) == none


def test_quota_of_a_child_lies_within_its_parents_on_v1(tree: Tree) -> None:
    """v1 refuses a child's quota above the parent's, and a parent's below the child's; v2 takes the smaller one."""
    parent, child = tree.make("/a"), tree.make("/a/b")
    file = by_version(tree, "cpu.cfs_quota_us", "cpu.max")
    none = by_version(tree, "-1", "max")
    assert write(tree, parent, file, "50000") == "ok"
    assert write(tree, child, file, "100000") == by_version(tree, "EINVAL", "ok")
    assert write(tree, child, file, "20000") == "ok"
    assert write(tree, parent, file, "10000") == by_version(tree, "EINVAL", "ok")
    assert write(tree, child, file, none) == "ok"
    assert write(tree, parent, file, none) == "ok"
