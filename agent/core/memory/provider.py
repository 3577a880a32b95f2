"""Memory Manager, policies Static and None, as a provider: memory and huge pages by NUMA node (kubelet rule 5).

Called by `agent.core.admission.node`. The state is `Ledger.memory`; the rules are in modules of their own:

    books      bytes taken from nodes and given back
    hints      which node sets will do           beyond     the same for nodes without CPUs (machines.tiers)
    choose     which of them is taken            reuse      what init containers leave to others
    placement  which of these rules applies      confined   what confined pods leave
    pods       pods managed as a whole

Only Guaranteed pods get memory of their own, and containers with CPUs of their own (`agent.core.request.exclusive`).
Compatibility.KUBELET answers as the kubelet of `Rules.minor` does, defects included, but never crashes (D8) and never
lets the books go wrong: memory of ended init containers is taken again (D4), a node of a group is granted alone (D5),
no preference is said where nothing fits (D7), a pod managed as a whole is granted twice (D9) and fails with a
container without a request (D10), and with pod scope held memory gives no hint (D11) or that of its first container
alone (D28), and a container's missing memory stays missing (D27). FIXED mends all of them and knows nodes without
CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.core.kubelets import kubelet_rules
from agent.core.memory import reuse
from agent.core.memory.books import Draft, empty_books
from agent.core.memory.choose import NO_EXTENSION, unexpected
from agent.core.memory.confined import CountedLedger
from agent.core.memory.hints import Placement
from agent.core.memory.placement import Placer
from agent.core.memory.pods import empty_pool, pool_blocks, shares
from agent.core.merge.provider import Answer
from agent.core.request import exclusive
from agent.core.request.amounts import AS_WHOLE, is_fractional, memory_requests, pod_memory_requests
from agent.model.hint import IMPOSSIBLE, Hint, Stance
from agent.model.idset import NodeSet
from agent.model.ledger import Block, Ledger, MemoryBooks
from agent.model.machine import Machine
from agent.model.outcome import Refusal
from agent.model.pod import Container, ContainerKind, Pod, Qos
from agent.model.rules import Compatibility, Rules
from agent.settings.memory_reserved import check_reserved

NO_INTEGER = "[memorymanager] failed to represent quantity as int64"


class MemoryManager:
    """The Memory Manager of one machine.

    Args:
        machine: its nodes and their memory.
        rules: `memory` (policy, reservation, tier), `compatibility`, `minor` and `pod_level_managers` are read.
    """

    name = "memory"

    def __init__(self, machine: Machine, rules: Rules) -> None:
        self._machine = machine
        self._rules = rules
        self._pod_level_managers = rules.pod_level_managers
        self._fixed = rules.compatibility is Compatibility.FIXED
        self._how = how = kubelet_rules(rules)
        self._shared_unasked = how.shared_memory_unasked
        self._placer = Placer(machine, rules)

    def start(self) -> MemoryBooks:
        """The books of this machine with nothing granted.

        Raises:
            SettingsError: policy Static keeps no memory for the system (rule 5.1), with the kubelet's sentence.
        """
        check_reserved(self._rules.memory)
        return empty_books(self._machine, self._rules.memory)

    def container_hints(self, ledger: Ledger, pod: Pod, container: Container) -> Answer:
        """Where this container's memory could lie."""
        books = self._seen(ledger, pod)
        if not self._serves(books, pod, container) or self._is_over(books, pod, container):
            return Stance.NO_PREFERENCE
        if is_fractional(container.requests) and not self._fixed:
            return Stance.NO_PREFERENCE
        request = memory_requests(pod, container, self._rules)
        if self._shared_unasked and not request:
            return Stance.NO_PREFERENCE
        held = books.blocks.get(pod.uid, {}).get(container.name)
        if held is not None:
            return self._held(pod, container, held, request)
        return self._offers(self._placer.placement(books, pod, container, request))

    def pod_hints(self, ledger: Ledger, pod: Pod) -> Answer:
        """Where the whole pod's memory could lie; what init containers leave to others is in the sum already."""
        books = self._seen(ledger, pod)
        if not self._manages(books, pod):
            return Stance.NO_PREFERENCE
        asked = [pod.requests or {}] if self._as_whole(pod) else [each.requests for each in pod.containers]
        if not self._fixed and any(is_fractional(each) for each in asked):
            return Stance.NO_PREFERENCE
        request = pod_memory_requests(pod, self._rules, init_types=self._how.init_types)
        if self._as_whole(pod) and empty_pool(pod):
            return dict.fromkeys(request, IMPOSSIBLE)
        if not request:
            return Stance.NO_PREFERENCE
        held = self._holds(books, pod, request)
        if held is not None:
            return self._held(pod, None, *held)
        return self._offers(self._placer.placement(books, pod, None, request))

    def _holds(
        self, books: MemoryBooks, pod: Pod, request: Mapping[str, int]
    ) -> tuple[Sequence[Block], Mapping[str, int]] | None:
        """Find what speaks for the pod of what it holds, and the request to compare it with.

        None if it holds nothing. The kubelet looks at the first container only. Up to 1.37 that never holds what the
        pod asks for (D11).
        """
        if self._how.pods_kept and self._as_whole(pod) and pod.uid in books.pools:
            return books.pools[pod.uid], request
        by_name = books.blocks.get(pod.uid, {})
        held = [(by_name[each.name], each) for each in pod.containers if each.name in by_name]
        if self._fixed or not held:
            return ([block for blocks, _ in held for block in blocks], request) if held else None
        blocks, first = held[0]
        return blocks, memory_requests(pod, first, self._rules) if self._how.held_by_container else request

    def allocate(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        """Take a container's memory; nothing is taken if it has some already."""
        if not (self._fixed and ledger.cpus.confined):
            return self._allocated(ledger, pod, container, affinity)
        seen = CountedLedger(ledger, pod.uid)
        return seen.undone(self._allocated(seen.ledger, pod, container, affinity))

    def allocate_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        """Take the memory of a pod managed as a whole, and share it out; kubelets up to 1.37 do so twice (D9)."""
        if not (self._fixed and ledger.cpus.confined):
            return self._allocated_pod(ledger, pod, affinity)
        seen = CountedLedger(ledger, pod.uid)
        return seen.undone(self._allocated_pod(seen.ledger, pod, affinity))

    def _seen(self, ledger: Ledger, pod: Pod) -> MemoryBooks:
        return CountedLedger(ledger, pod.uid).ledger.memory if self._fixed and ledger.cpus.confined else ledger.memory

    def _allocated(self, ledger: Ledger, pod: Pod, container: Container, affinity: Hint) -> Ledger | Refusal:
        books = ledger.memory
        if not self._serves(books, pod, container) or self._is_over(books, pod, container):
            return ledger
        request = memory_requests(pod, container, self._rules)
        if self._shared_unasked and not request:
            return ledger
        held = books.blocks.get(pod.uid, {}).get(container.name)
        if held is not None:
            return self._kept(ledger, books, pod, container, held)
        if self._fixed and not request:  # D10: it takes its memory from the node like any shared container
            return ledger
        taken = self._taken(books, pod, container, request, affinity)
        if isinstance(taken, Refusal):
            return taken
        after, blocks = taken
        return self._kept(ledger, after, pod, container, blocks)

    def _allocated_pod(self, ledger: Ledger, pod: Pod, affinity: Hint) -> Ledger | Refusal:
        books = ledger.memory
        kept = pod.uid in books.pools and (self._fixed or self._how.pods_kept)
        if pod.qos is not Qos.GUARANTEED or not books.nodes or kept:
            return ledger
        if is_fractional(pod.requests or {}) and not self._fixed:
            return ledger
        refusal = empty_pool(pod)
        if refusal is not None:
            return refusal
        request = pod_memory_requests(pod, AS_WHOLE)
        nodes = self._placer.chosen(self._placer.placement(books, pod, None, request), affinity)
        if isinstance(nodes, Refusal):
            return nodes
        if pod.uid in books.pools:  # the kubelet takes it all again and forgets the first: books that go wrong
            return ledger
        draft = Draft(books.nodes, exact=self._fixed)
        pool = tuple(draft.take(block, block.size) for block in pool_blocks(pod, nodes))
        blocks = {**books.blocks, pod.uid: {**books.blocks.get(pod.uid, {}), **shares(pod, nodes)}}
        after = replace(books, nodes=draft.nodes, blocks=blocks, pools={**books.pools, pod.uid: pool})
        return replace(ledger, memory=after)

    def started(self, ledger: Ledger, pod: Pod, container: Container) -> Ledger:
        """A container was created: the regular init containers listed before it have ended (kubelet rule 5.9)."""
        for name in reuse.inits_before(pod, container) if pod.uid in ledger.memory.blocks else ():
            ledger = self.release(ledger, pod.uid, name)
        return ledger

    def release(self, ledger: Ledger, uid: str, container: str | None = None) -> Ledger:
        """Give back what one container, or the whole pod, holds."""
        books = ledger.memory
        held = books.blocks.get(uid, {})
        record = ledger.pods.get(uid)
        order = [each.name for each in record.pod.containers] if record else list(held)
        gone = [name for name in order if name in held and container in (None, name)]
        if not gone:
            return ledger
        kept = {name: blocks for name, blocks in held.items() if name not in gone}
        pool = books.pools.get(uid)
        draft = Draft(books.nodes, exact=self._fixed)
        given = [block for name in gone for block in held[name]]
        if pool is not None:  # its containers' shares are not accounted: the pool goes with the last of them
            given = [] if kept else list(pool)
        for block in given:
            draft.give(block)
        blocks = {**books.blocks, uid: kept}
        pools = books.pools
        if not kept:
            del blocks[uid]
            pools = {key: each for key, each in pools.items() if key != uid}
        return replace(ledger, memory=replace(books, nodes=draft.nodes, blocks=blocks, pools=pools))

    def _as_whole(self, pod: Pod) -> bool:
        return self._pod_level_managers and pod.pod_level

    def _manages(self, books: MemoryBooks, pod: Pod) -> bool:
        """Whether a pod's containers can have memory of their own at all."""
        eligible = pod.qos is Qos.GUARANTEED or exclusive.requested(pod, self._rules)
        return bool(books.nodes) and eligible and (self._pod_level_managers or not pod.pod_level)

    def _serves(self, books: MemoryBooks, pod: Pod, container: Container) -> bool:
        """Whether one of its containers can: of a pod that is not Guaranteed, one with CPUs of its own."""
        return self._manages(books, pod) and exclusive.memory_takes_part(pod, container, self._rules)

    def _is_over(self, books: MemoryBooks, pod: Pod, container: Container) -> bool:
        """D4: a regular init container that holds nothing while one listed after it does has ended."""
        held = books.blocks.get(pod.uid, {})
        if not self._fixed or container.kind is not ContainerKind.INIT or not held or container.name in held:
            return False
        names = [each.name for each in pod.containers]
        return any(name in held for name in names[names.index(container.name) + 1 :])

    def _offers(self, placement: Placement) -> Answer:
        """The same for each resource asked for. Where nothing fits IMPOSSIBLE; in the kubelet, no preference (D7)."""
        request = placement.table.request
        demand = placement.demand() if request else None
        if demand is not None:
            return dict.fromkeys(request, demand)
        return dict.fromkeys(request, IMPOSSIBLE) if self._fixed else {}

    def _held(
        self, pod: Pod, container: Container | None, blocks: Iterable[Block], request: Mapping[str, int]
    ) -> Answer:
        """Hints of what is held already: it stays where it is.

        The kubelet says so only where sizes and resources are those of the request, so not after an init container's
        block has shrunk (kubelet rule 5.4: hints).
        """
        if self._fixed:
            nodes = NodeSet.union(block.nodes for block in blocks)
            return (
                dict.fromkeys(request, self._placer.where_held(pod, container, nodes))
                if nodes
                else Stance.NO_PREFERENCE
            )
        if {block.resource: block.size for block in blocks} != request:
            return Stance.NO_PREFERENCE
        return {block.resource: self._placer.where_held(pod, container, block.nodes) for block in blocks}

    def _taken(
        self, books: MemoryBooks, pod: Pod, container: Container, request: Mapping[str, int], affinity: Hint
    ) -> tuple[MemoryBooks, tuple[Block, ...]] | Refusal:
        """The books with a container's new blocks in them, and the blocks."""
        if is_fractional(container.requests) and not self._fixed:
            return unexpected(NO_INTEGER)
        nodes = self._placer.chosen(self._placer.placement(books, pod, container, request), affinity)
        if isinstance(nodes, Refusal):
            return nodes
        draft = Draft(books.nodes, exact=self._fixed)
        held = dict(books.blocks.get(pod.uid, {}))
        left = reuse.left_in_blocks(books, pod, container)
        also = left if self._fixed else reuse.kubelets_account(books, pod)
        inits = reuse.inits_before(pod, container)
        free = {name: sum(book.free(name) for book in books.nodes if book.id in nodes) for name in request}
        blocks = []
        for name, amount in request.items():
            key = nodes, name
            reused = min(amount, left.get(key, 0), also.get(key, 0))
            if amount - reused > free[name]:  # only where the kubelet's two accounts of reuse disagree
                return unexpected(NO_EXTENSION)
            moved = reuse.take_over(held, inits, key, reused)
            blocks.append(draft.take(Block(name, amount, nodes), amount - reused, moved))
        held[container.name] = tuple(blocks)
        after = replace(books, nodes=draft.nodes, blocks={**books.blocks, pod.uid: held})
        return after, tuple(blocks)

    def _kept(
        self, ledger: Ledger, books: MemoryBooks, pod: Pod, container: Container, blocks: Iterable[Block]
    ) -> Ledger:
        """The ledger with these books; with what may be reused, where that is accounted for."""
        if not self._fixed:
            books = reuse.account_after(books, pod, container, blocks)
        return ledger if books is ledger.memory else replace(ledger, memory=books)
