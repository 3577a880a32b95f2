"""What a guest must look like, from QEMU's arguments and the kernel's command line alone.

Called when a recording is made and by tests/replay/test_guests.py. It shares nothing with discovery: no file of the
guest is read here. Rules: qemu(1), -smp and -numa; Linux keeps a thread's, core's, die's place in the APIC id
(https://docs.kernel.org/arch/x86/topology.html); an Intel model of QEMU shows one L3 per die.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agent.model.idset import IdSet

LOCAL, REMOTE = 10, 20
"""Distances where nothing else is said (ACPI 6.5, 5.2.17)."""
CHIPSETS = {
    "q35": ("8086:29c0", "8086:2918", "8086:2922", "8086:2930"),
    "pc": ("8086:1237", "8086:7000", "8086:7010", "8086:7113"),
    "virt": ("1b36:0008",),
}
"""PCI functions that each machine has by itself."""
MODELS = {
    "pxb-pcie": "1b36:000b",
    "pcie-root-port": "1b36:000c",
    "e1000e": "8086:10d3",
    "e1000": "8086:100e",
    "nvme": "1b36:0010",
    "ioh3420": "8086:3420",
    "x3130-upstream": "104c:8232",
    "xio3130-downstream": "104c:8233",
    "virtio-rng-pci": "1af4:1044",  # below a port; at a root bus it is an older one
}
"""vendor:device of QEMU's models (https://www.qemu.org/docs/master/specs/pci-ids.html)."""
KIB = 1024


def truth(arguments: Sequence[str]) -> dict[str, Any]:
    """The facts of a guest, with the keys of recorded machines where there is one.

    Beside them: installed_bytes per node, of which the kernel keeps some; pci as "vendor:device" with its nodes.
    """
    told = list(_options(arguments))
    words = dict(word.partition("=")[::2] for word in _one(told, "-append").split())
    offline = IdSet.parse(words.get("numalign.offline", ""))
    smp = _parts(_one(told, "-smp"), "cpus")
    count = int(smp["cpus"])
    online = IdSet.from_ids(range(count)) - offline
    threads, cores, dies = (int(smp.get(unit, "1")) for unit in ("threads", "cores", "dies"))
    nodes = _nodes(told, online, words, count)
    ids = [node["node"] for node in nodes]
    die = _units(online, threads * cores)
    return {
        "cpus": list(online),
        "offline": [cpu for cpu in range(count) if cpu in offline],
        "isolated": [cpu for cpu in IdSet.parse(words.get("isolcpus", "")) if cpu in online],
        "cores": _units(online, threads),
        "dies": die,
        "packages": _units(online, threads * cores * dies),
        "l3": die,
        "numa": nodes,
        "distances": {"nodes": ids, "matrix": _matrix(told, ids)} if len(ids) > 1 else None,
        "pci": _pci(told, ids),
    }


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(option, value) in order; all options used here have a value."""
    yield from zip(arguments[::2], arguments[1::2], strict=True)


def _one(told: Iterable[tuple[str, str]], option: str) -> str:
    return next((value for name, value in told if name == option), "")


def _parts(value: str, first: str) -> dict[str, str]:
    """A value like "16,sockets=2": its parts by name, the first one may have none."""
    head, *rest = value.split(",")
    found = dict([head.split("=")]) if "=" in head else {first: head}
    return found | dict(part.partition("=")[::2] for part in rest if not part.startswith("cpus="))


def _units(online: IdSet, size: int) -> list[list[int]]:
    """CPUs cut into units of a size, without those that are offline."""
    found: dict[int, list[int]] = {}
    for cpu in online:
        found.setdefault(cpu // size, []).append(cpu)
    return list(found.values())


def _nodes(told: list[tuple[str, str]], online: IdSet, words: dict[str, str], count: int) -> list[dict[str, Any]]:
    """Nodes that have memory or a CPU that is plugged in; without any -numa there is one."""
    values = [value for option, value in told if option == "-numa" and value.startswith("node,")]
    pages = _pages(words.get("numalign.pages", ""))
    if not values:
        return [_node(0, online, _megabytes(_one(told, "-m")), pages, [])]
    sizes = {_parts(v, "kind")["id"]: _megabytes(_parts(v, "kind")["size"]) for o, v in told if o == "-object"}
    found = []
    for value in values:
        parts = _parts(value, "kind")
        here = IdSet.union(IdSet.parse(part[5:]) for part in value.split(",") if part.startswith("cpus="))
        plugged = here & IdSet.from_ids(range(count))
        memory = sizes.get(parts.get("memdev", ""), 0)
        if plugged or memory:
            near = [int(parts["initiator"])] if "initiator" in parts else []
            found.append(_node(int(parts["nodeid"]), plugged & online, memory, pages, near))
    return found


def _node(number: int, cpus: IdSet, memory: int, pages: dict[int, dict[str, int]], near: list[int]) -> dict[str, Any]:
    return {
        "node": number,
        "cpus": list(cpus),
        "installed_bytes": memory,
        "hugepages": pages.get(number, {}),
        "initiators": near,
    }


def _megabytes(text: str) -> int:
    return int(text.removesuffix("M")) * KIB * KIB


def _pages(text: str) -> dict[int, dict[str, int]]:
    """As "1:2048:16": node 1, pages of 2048 kB, 16 of them."""
    found: dict[int, dict[str, int]] = {}
    for part in filter(None, text.split(",")):
        node, size, number = (int(each) for each in part.split(":"))
        found.setdefault(node, {})[str(size * KIB)] = number
    return found


def _matrix(told: list[tuple[str, str]], ids: list[int]) -> list[list[int]]:
    """Distances as given; given one way only, they hold both ways."""
    given = {}
    for option, value in told:
        if option == "-numa" and value.startswith("dist,"):
            parts = _parts(value, "kind")
            src, dst = int(parts["src"]), int(parts["dst"])
            given[src, dst] = int(parts["val"])
            given.setdefault((dst, src), int(parts["val"]))
    return [[given.get((a, b), LOCAL if a == b else REMOTE) for b in ids] for a in ids]


def _pci(told: list[tuple[str, str]], ids: list[int]) -> dict[str, int]:
    """As "vendor:device near nodes" -> how many; a bus takes its node from the host bridge that it hangs at."""
    machine = _parts(_one(told, "-machine"), "type")["type"]
    near: dict[str, list[int]] = {}
    found = Counter(f"{model} near {_text(ids)}" for model in CHIPSETS[machine])
    for option, value in told:
        if option != "-device":
            continue
        parts = _parts(value, "model")
        here = near.get(parts.get("bus", ""), ids)
        found[f"{MODELS[parts['model']]} near {_text(here)}"] += 1
        if "id" in parts:
            near[parts["id"]] = [int(parts["numa_node"])] if "numa_node" in parts else here
    return dict(sorted(found.items()))


def _text(ids: Iterable[int]) -> str:
    return str(IdSet.from_ids(ids))
