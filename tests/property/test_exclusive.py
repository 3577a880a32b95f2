"""No order of init containers, sidecars and apps gives a Burstable pod more CPUs of its own than it requested."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.accounting.invariants import broken_rules
from agent.core.cgroups.desired import own_of
from agent.core.request.amounts import pod_requests
from agent.model.podspec import pod_from
from tests.examples import examples
from tests.world.manifests import container, manifest
from tests.world.nodes import managers_of
from tests.world.steps import Seen, at_first, step

MACHINES = (
    "2 sockets x 1 node x 8 cores x 2 threads", "2 sockets x 1 node x 16 cores x 1 thread",
    "2 sockets x 2 nodes x 4 cores x 2 threads",
)  # fmt: skip
SIDE: dict[str, Any] = {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}}}
sizes = st.sampled_from(["1", "2", "3", "4", "7", "8", "500m", "1500m"])
options = st.sampled_from([
    {}, {"full-pcpus-only": "true"}, {"distribute-cpus-across-numa": "true"}, {"align-by-socket": "true"},
    {"distribute-cpus-across-cores": "true"}, {"prefer-align-cpus-by-uncorecache": "true"},
])  # fmt: skip
node_settings = st.fixed_dictionaries({
    "reservedSystemCPUs": st.sampled_from(["0", "0-1"]), "compatibility": st.sampled_from(["fixed", "kubelet"]),
    "featureGates": st.just({"CPUManagerPolicyAlphaOptions": True}),
    "cpuManagerPolicyOptions": options, "topologyManagerScope": st.sampled_from(["container", "pod"]),
    "topologyManagerPolicy": st.sampled_from(["none", "best-effort", "restricted"]),
})  # fmt: skip


def listed(data: st.DataObject, names: list[str]) -> str:
    """Some of the names, as an annotation has them."""
    return ",".join(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))


@settings(max_examples=examples(100), deadline=None)
@given(
    machine=st.sampled_from(MACHINES), document=node_settings, others=sizes, data=st.data(),
    inits=st.lists(st.tuples(st.booleans(), sizes), max_size=5), apps=st.lists(sizes, min_size=1, max_size=3),
)  # fmt: skip
def test_nothing_is_taken_that_was_not_requested(
    machine: str, document: dict[str, Any], others: str, data: st.DataObject,
    inits: list[tuple[bool, str]], apps: list[str],
) -> None:  # fmt: skip
    """Whatever is asked for by name, beside another pod; and what is granted breaks no rule."""
    first = [
        container(f"i{number}", cpu=cpu, **({"restartPolicy": "Always"} if stays else {}))
        for number, (stays, cpu) in enumerate(inits)
    ]
    then = [container(f"a{number}", cpu=cpu) for number, cpu in enumerate(apps)]
    names = [each["name"] for each in (*first, *then)]
    exclusive = data.draw(st.sampled_from(["auto", listed(data, names)]))
    body = manifest(
        "p", *then, container("log", cpu="", memory="") | SIDE, inits=first, created=1, exclusive=exclusive,
        mixed=listed(data, names),
    )  # fmt: skip
    pod, node = pod_from(body), managers_of(machine, document)
    state = step(at_first(node), Seen(pod_from(manifest("other", container(cpu=others)))), 1.0).state
    state = step(state, Seen(pod), 2.0).state
    assert len(own_of(state.ledger, "p")) * 1000 <= pod_requests(pod)["cpu"]
    assert list(broken_rules(state.ledger, node)) == []
