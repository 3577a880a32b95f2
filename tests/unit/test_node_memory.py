"""What each NUMA node could still give, from the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import HostError
from agent.host.files import HostFiles
from agent.host.node_memory import NodeMemory

NODE = "sys/devices/system/node/node{0}"
FULL = """Node {0} MemTotal:        8000 kB
Node {0} MemFree:         1000 kB
Node {0} Active(file):     700 kB
Node {0} FilePages:       2000 kB
Node {0} Shmem:            500 kB
Node {0} SReclaimable:     300 kB
"""


def _tree(folder: Path, texts: dict[str, str]) -> NodeMemory:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return NodeMemory(HostFiles(str(folder)))


def test_s7_free_memory_counts_cache_but_not_shared_memory(tmp_path: Path) -> None:
    """Free pages, page cache less shared memory, reclaimable slabs; a node without memory is left out."""
    memory = _tree(tmp_path, {
        f"{NODE.format(0)}/meminfo": FULL.format(0),
        f"{NODE.format(3)}/meminfo": "Node 3 MemTotal: 0 kB\nNode 3 MemFree: 0 kB\n",
    })  # fmt: skip
    assert memory.available([0, 3, 7]) == {0: (1000 + 2000 - 500 + 300) * 1024}


def test_a_kernel_without_numa_tells_it_for_the_machine(tmp_path: Path) -> None:
    """Without node folders, /proc/meminfo is node 0's."""
    memory = _tree(tmp_path, {"proc/meminfo": "MemTotal: 800 kB\nMemFree: 100 kB\nCached: 50 kB\nShmem: 80 kB\n"})
    assert memory.available([0]) == {0: 100 * 1024}


def test_this_machine_has_some() -> None:
    """The real files are understood."""
    found = NodeMemory().available(range(8))
    assert found
    assert all(size > 0 for size in found.values())


SAID = """Node {0} MemTotal:        8000 kB
Node {0} MemFree:         1000 kB
Node {0} Active(file):     700 kB
Node {0} Inactive(file):   200 kB
Node {0} FilePages:       2000 kB
Node {0} Shmem:            500 kB
Node {0} SReclaimable:     300 kB
Node {0} HugePages_Free:     3
"""


def test_s7_room_is_what_is_free_or_on_the_file_lists_or_a_reclaimable_slab(tmp_path: Path) -> None:
    """Locked files, shared memory and huge pages cannot be reclaimed for a pod; a kernel without NUMA is node 0's."""
    memory = _tree(
        tmp_path, {f"{NODE.format(1)}/meminfo": SAID.format(1), "proc/meminfo": SAID.replace("Node {0} ", "")}
    )
    assert memory.room([0, 1]) == dict.fromkeys((0, 1), (1000 + 700 + 200 + 300) * 1024)
    (tmp_path / "proc" / "meminfo").write_text(SAID.replace("Node {0} ", "").replace("1000 kB", "7999 kB"))
    assert memory.room([0]) == {0: 8000 * 1024}, "never more than there is"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "node1/meminfo"),
        ("", "MemTotal, MemFree"),
        (SAID.replace("1000 kB", "many kB"), "no number of kB for MemFree"),
        (SAID.replace("1000 kB", "9" * 30 + " kB"), "no number of kB for MemFree"),
    ],
)
def test_s7_a_node_that_says_nonsense_is_an_error_that_names_its_file(
    tmp_path: Path, text: str | None, why: str
) -> None:
    """No decision rests on half a file: missing, empty, no number, or one that is too long."""
    texts = {} if text is None else {f"{NODE.format(1)}/meminfo": text.replace("{0}", "1")}
    with pytest.raises(HostError, match=why) as raised:
        _tree(tmp_path, texts).room([1])
    assert "node1/meminfo" in str(raised.value)
