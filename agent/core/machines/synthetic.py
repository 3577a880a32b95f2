"""A machine from a short description, for simulations and tests.

Called by `agent.host.machines` (--root 'synthetic:...'), `numalign simulate` and tests. In the spirit of hwloc's
synthetic strings (https://www.open-mpi.org/projects/hwloc/doc/, "Synthetic topologies"), in words:

    2 sockets x 4 nodes x 16 cores x 2 threads, 8 CPUs per L3, 64G per node, 1000 2Mi pages, gpu on 1 and 3

The part with counts multiplies units (sockets, dies, nodes, L3s, cores, threads), outermost first; what is left out
counts once. "x", "×" and "*" mean the same, upper and lower case too. The other parts, in any order:

    8 CPUs per L3                        which CPUs share a level 3 cache; without it the L3 is the node's
    64G per node | 96G on 2              memory (binary units); 16G without it
    1000 2Mi pages | 4 1Gi pages on 0    huge pages per node
    gpu on 1 and 3 | 2 nics on 0         PCI devices (gpu, nic, nvme; vf: a NIC and its virtual functions)
    memory node 16G hbm near 0           a node without CPUs: dram, hbm, far or gpu
    offline 5,7 | isolated 2-3           CPUs
    efficiency 8-15                      CPUs of a hybrid machine
    distance 10 12 21                    local, other node of the socket, other socket
    node ids 0,8                         ids with holes, for the nodes with CPUs
    adjacent threads                     siblings are numbered side by side

CPUs are otherwise numbered as Linux does on x86: the first threads of all cores, then the second ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.core.machines.synthetic_build import MAX_CPUS, Plan, build
from agent.errors import MalformedError
from agent.model.idset import IdSet
from agent.model.machine import Machine, MemoryKind

EXAMPLE = "2 sockets x 2 nodes x 8 cores x 2 threads, 8 CPUs per L3, 64G per node, gpu on 1"
LONGEST = 4096

_UNITS = {"socket": "socket", "package": "socket", "die": "die", "node": "node", "numa node": "node", "l3": "l3",
          "core": "core", "cpu": "core", "thread": "thread"}  # fmt: skip
_ORDER = ("socket", "die", "node", "l3", "core", "thread")
_UNIT = r"(\d{1,6}) *(sockets?|packages?|dies|die|(?:numa )?nodes?|l3s?|cores?|cpus?|threads?)"
_SIZE = r"(\d{1,9})(?:\.(\d{1,3}))? *([kmgt])(?:i?b?)"
_LIST = r"(?:nodes? )?([\d ,-]+?)"
_SCALE = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_synthetic(text: str, name: str = "") -> Machine:
    """Build a machine from a description.

    Args:
        text: as the module's docstring says.
        name: of the machine; the description itself without it.

    Raises MalformedError naming the part that is wrong.
    """
    if len(text) > LONGEST:
        raise MalformedError(f"a description of {len(text)} characters is too long (at most {LONGEST})")
    plan = Plan()
    for part in _parts(text):
        _apply(plan, part)
    return build(plan, name or text.strip())


def _parts(text: str) -> list[str]:
    """Split at commas, except between the numbers of a list ("gpu on 0, 2")."""
    plain = re.sub(r"\s+", " ", text.lower().replace("×", "x").replace("*", "x").replace("&", "and"))
    parts: list[str] = []
    for piece in re.split(r"[,;]| and ", plain):
        piece = piece.strip()  # noqa: PLW2901 - because the stripped piece is the piece
        if not piece:
            continue
        if parts and re.fullmatch(r"\d+(?: ?- ?\d+)?", piece):
            parts[-1] += "," + piece.replace(" ", "")
        else:
            parts.append(piece)
    if not parts:
        raise MalformedError(f'the description of a machine is empty; for example "{EXAMPLE}"')
    return parts


def _apply(plan: Plan, part: str) -> None:
    for pattern, use in _GRAMMAR:
        match = pattern.fullmatch(part)
        if match:
            use(plan, part, match)
            return
    raise MalformedError(f'"{part[:80]}" is no part of a machine\'s description; for example "{EXAMPLE}"')


def _use_units(plan: Plan, part: str, match: re.Match[str]) -> None:
    del match
    last = -1
    for count, word in re.findall(_UNIT, part):
        unit = _UNITS[word if word in _UNITS else word.removesuffix("s")]
        place = _ORDER.index(unit)
        if place <= last:
            raise MalformedError(f'"{part[:80]}": units go from sockets over {", ".join(_ORDER[1:])}, each once')
        last = place
        if unit in plan.counts:
            raise MalformedError(f'"{part[:80]}": the {unit} count is given twice')
        plan.counts[unit] = _positive(part, count)


def _use_l3(plan: Plan, part: str, match: re.Match[str]) -> None:
    plan.cpus_per_l3 = _positive(part, match[1])


def _use_memory(plan: Plan, part: str, match: re.Match[str]) -> None:
    size = _size(match[1], match[2], match[3])
    if match[4]:
        plan.memory_on.update(dict.fromkeys(_ids(part, match[4]), size))
    else:
        plan.memory = size


def _use_pages(plan: Plan, part: str, match: re.Match[str]) -> None:
    size = _size(match[2], match[3], match[4])
    nodes = tuple(_ids(part, match[5])) if match[5] else None
    plan.pages.append((size, int(match[1]), nodes))


def _use_devices(plan: Plan, part: str, match: re.Match[str]) -> None:
    plan.devices.append((match[2].removesuffix("s"), _positive(part, match[1] or "1"), tuple(_ids(part, match[3]))))


def _use_memory_node(plan: Plan, part: str, match: re.Match[str]) -> None:
    kind = MemoryKind(match[4] or "dram")
    near = tuple(_ids(part, match[5])) if match[5] else ()
    plan.memory_nodes.append((_size(match[1], match[2], match[3]), kind, near))


def _use_cpus(plan: Plan, part: str, match: re.Match[str]) -> None:
    plan.sets[match[1]] = IdSet.from_ids((*plan.sets.get(match[1], IdSet()), *_ids(part, match[2])))


def _use_distance(plan: Plan, part: str, match: re.Match[str]) -> None:
    numbers = [_positive(part, text) for text in match[1].replace(",", " ").split()]
    plan.distance = (numbers[0], numbers[1], numbers[-1])


def _use_node_ids(plan: Plan, part: str, match: re.Match[str]) -> None:
    plan.node_ids = tuple(_ids(part, match[1]))


def _use_adjacent(plan: Plan, part: str, match: re.Match[str]) -> None:
    del part, match
    plan.adjacent = True


_GRAMMAR: tuple[tuple[re.Pattern[str], Callable[[Plan, str, re.Match[str]], None]], ...] = (
    (re.compile(rf"{_UNIT}(?: *x *{_UNIT})*"), _use_units),
    (re.compile(r"(\d{1,6}) cpus? (?:per|in each) l3"), _use_l3),
    (re.compile(rf"{_SIZE} (?:per node|each|on {_LIST})"), _use_memory),
    (re.compile(rf"(\d{{1,9}}) {_SIZE} (?:huge ?)?pages?(?: per node| on {_LIST})?"), _use_pages),
    (re.compile(rf"(?:(\d{{1,4}}) )?(gpus?|nics?|nvmes?|vfs?) on {_LIST}"), _use_devices),
    (re.compile(rf"memory node {_SIZE}(?: (dram|hbm|far|gpu))?(?: near {_LIST})?"), _use_memory_node),
    (re.compile(r"(offline|isolated|efficiency)(?: cpus?)? ([\d ,-]+)"), _use_cpus),
    (re.compile(r"distances? (\d{1,5}[ ,]\d{1,5}(?:[ ,]\d{1,5})?)"), _use_distance),
    (re.compile(r"node ids ([\d ,-]+)"), _use_node_ids),
    (re.compile(r"adjacent threads"), _use_adjacent),
)


def _positive(part: str, text: str) -> int:
    number = int(text)
    if not 0 < number <= MAX_CPUS:
        raise MalformedError(f'"{part[:80]}": {number} is not between 1 and {MAX_CPUS}')
    return number


def _ids(part: str, text: str) -> list[int]:
    try:
        return list(IdSet.parse(text.replace(" ", "")))
    except MalformedError as error:
        raise MalformedError(f'"{part[:80]}": {error}') from error


def _size(whole: str, part: str | None, unit: str) -> int:
    thousandths = int(whole) * 1000 + int((part or "").ljust(3, "0"))
    return thousandths * _SCALE[unit] // 1000
