"""What `tools.bench.load` is told to do, and what it found: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tools.bench.relay import Traffic


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything.

    Attributes:
        agents, processes: agents in all, over so many processes.
        nodes: Nodes in all, the agents' own included.
        levels: numbers of others' pods, ascending; the first is 0.
        present: pods on each agent's node from the beginning.
        quiet: seconds of a phase that waits.
        rate: others' changes per second.
        own_rate: changes per second of the agents' own pods; each pod is three.
        own: pods that come and go, in all, per phase.
        settle: seconds of rest after a level's pods were made.
        steps: own pods come all, run all and go all, and after each step the agents come to rest: what a pod costs is
            then one number, however slow the machine is. Else they overlap, at their rate.
        summaries: agents publish their node's summary (`fleet.publish`).
    """

    agents: int = 200
    processes: int = 2
    nodes: int = 5000
    levels: tuple[int, ...] = (0, 5000, 20000)
    present: int = 5
    quiet: float = 60.0
    rate: float = 60.0
    own_rate: float = 20.0
    own: int = 200
    settle: float = 3.0
    steps: bool = False
    summaries: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """What one phase took.

    Attributes:
        name: one of those in `tools.bench.load`.
        others: others' pods that existed.
        seconds: its length.
        changes: others' changes within.
        pods: own pods that came, ran and went.
        traffic: the agents' bytes and connections.
        requests: the agents' requests by verb, their own count.
        served: requests by "VERB resource/subresource" that the server counted, of everybody.
        sent: watch events that the server sent, of everybody, by resource.
        watches: open watches at the end, of everybody, by resource.
        events: events of pods that reached agents; `strangers`: of other nodes' pods.
        server_cpu, etcd_cpu, agents_cpu: seconds.
        server_rss: the server's memory at the end, bytes.
        etcd_written: bytes that etcd wrote to its log, for everybody.
    """

    name: str
    others: int
    seconds: float
    changes: int
    pods: int
    traffic: Traffic
    requests: Mapping[str, int]
    served: Mapping[str, int]
    sent: Mapping[str, int]
    watches: Mapping[str, int]
    events: int
    strangers: int
    server_cpu: float
    etcd_cpu: float
    agents_cpu: float
    server_rss: int
    etcd_written: int = 0
