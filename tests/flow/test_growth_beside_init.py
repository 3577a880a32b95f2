"""Resizes beside an init container: a pod holds what a scheduler counts, whatever its finished init container had.

Finding 12.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.flow.world import World, container, manifest

EIGHT = "1 socket x 1 node x 8 cores x 1 thread"


def pod(cpu: str, *, init: str = "4", helper: str = "") -> dict[str, Any]:
    """A pod with an init container, perhaps a sidecar after it, and an app."""
    helpers = [container("helper", cpu=helper, restartPolicy="Always")] if helper else []
    return manifest("p", container("app", cpu=cpu), inits=[container("init", cpu=init), *helpers], created=1)


def test_growth_takes_what_its_init_container_left(tmp_path: Path) -> None:
    """Four CPUs for the init, two for the app, then four: the pod holds four, and the next pod finds its three."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(pod("2"))
    assert (world.holds("p", "init"), world.holds("p")) == ("1-4", "1-2")
    world.see(pod("4"))
    assert (world.holds("p"), world.effective("p")) == ("1-4", "1-4")
    world.see(manifest("q", container(cpu="3"), created=2))
    assert world.holds("q") == "5-7"


def test_beyond_the_init_container_it_takes_all_of_it_and_more(tmp_path: Path) -> None:
    """Six CPUs for an app whose init left four: these and two others; back to two it has what it had."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(pod("2"))
    world.see(pod("6"))
    assert world.holds("p") == "1-6"
    world.see(pod("2"))
    assert (world.holds("p"), str(world.engine.ledger.cpus.shared)) == ("1-2", "0,5-7")


def test_what_a_sidecar_holds_is_not_taken(tmp_path: Path) -> None:
    """A sidecar after the init container got one of its CPUs: the app grows by the others only, then elsewhere."""
    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.run(pod("1", helper="1"))
    helper = world.engine.ledger.grant("p", "helper").cpus
    world.see(pod("4", helper="1"))
    app, init = (world.engine.ledger.grant("p", name).cpus for name in ("app", "init"))
    assert app is not None
    assert helper is not None
    assert init is not None
    assert len(app) == 4
    assert not app & helper
    assert init - helper <= app


def test_a_sidecar_leaves_the_init_containers_after_it_alone(tmp_path: Path) -> None:
    """A sidecar runs beside the init containers listed after it: it grows into none of theirs."""
    inits = [container("helper", cpu="1", restartPolicy="Always"), container("init", cpu="3")]
    more = [container("helper", cpu="3", restartPolicy="Always"), container("init", cpu="3")]
    world = World(tmp_path, machine="1 socket x 1 node x 12 cores x 1 thread")
    world.engine.pods_listed(set())
    world.run(manifest("p", container("app", cpu="1"), inits=inits, created=1))
    world.see(manifest("p", container("app", cpu="1"), inits=more, created=1))
    helper, init = (world.engine.ledger.grant("p", name).cpus for name in ("helper", "init"))
    assert helper is not None
    assert init is not None
    assert len(helper) == 3
    assert not helper & init


def test_whole_cores_only(tmp_path: Path) -> None:
    """With full-pcpus-only it takes whole cores of the init container's, and whole ones of the others."""
    options = {"full-pcpus-only": "true"}
    settings = {"cpuManagerPolicyOptions": options, "reservedSystemCPUs": "0,8", "kubeReserved": {}}
    world = World(tmp_path, machine="1 socket x 1 node x 8 cores x 2 threads", settings=settings)
    world.engine.pods_listed(set())
    world.run(pod("2"))
    world.see(pod("6"))
    app, init = (world.engine.ledger.grant("p", name).cpus for name in ("app", "init"))
    assert app is not None
    assert init is not None
    assert init <= app
    assert all(core <= app or not core & app for core in world.machine.cores)


def test_s05_a_growth_that_would_take_the_last_shared_cpu_is_refused(tmp_path: Path) -> None:
    """With strict reservation the pool must not become empty: the resize is not followed, and says so."""
    strict = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    world = World(tmp_path, machine="1 socket x 1 node x 4 cores x 1 thread", settings=strict)
    world.engine.pods_listed(set())
    one = manifest("p", container("app", cpu="2"), created=1)
    world.run(one)
    world.see(manifest("p", container("app", cpu="3"), created=1))
    record = world.engine.ledger.pods["p"]
    assert len(world.engine.ledger.grant("p", "app").cpus or ()) == 2
    assert "the shared pool would become empty" in record.why["app"]
    assert not record.aligned["app"]


def test_less_beside_an_init_container_is_what_a_scheduler_counts(tmp_path: Path) -> None:
    """Two apps beside an init container's CPUs, one of which shrinks: the pod keeps six CPUs and not eight."""

    def two(first: str, second: str) -> dict[str, Any]:
        apps = (container("app", cpu=first), container("other", cpu=second))
        return manifest("p", *apps, inits=[container("init", cpu="3")], created=1)

    world = World(tmp_path, machine="1 socket x 1 node x 12 cores x 1 thread")
    world.engine.pods_listed(set())
    world.run(two("3", "5"))
    assert (world.holds("p", "init"), world.holds("p"), world.holds("p", "other")) == ("1-3", "1-3", "4-8")
    world.see(two("1", "5"))
    assert (world.holds("p"), world.holds("p", "other")) == ("1", "4-8"), "what runs is not moved"
    assert world.holds("p", "init") == "1,4-5"
    world.run(manifest("next", container(cpu="5"), created=2))
    assert world.holds("next") == "2-3,9-11"


def test_an_init_container_that_may_run_is_not_moved(tmp_path: Path) -> None:
    """A sidecar shrinks between two init containers: the second one runs until the kubelet has made the app."""

    def body(sidecar: str, app: str = "") -> dict[str, Any]:
        inits = [container("first", cpu="3"), container("sidecar", cpu=sidecar, restartPolicy="Always")]
        said = [{"name": "sidecar", "allocatedResources": {"cpu": sidecar, "memory": "64Mi"}}]
        made = [{"name": "app", "allocatedResources": {"cpu": app, "memory": "64Mi"}}] if app else []
        pod = manifest("p", container("app", cpu=app or "1"), inits=[*inits, container("second", cpu="2")], created=1)
        return {**pod, "status": {"initContainerStatuses": said, "containerStatuses": made}}

    world = World(tmp_path, machine=EIGHT)
    world.engine.pods_listed(set())
    world.heard(body("3"))
    held = {name: world.holds("p", name) for name in ("first", "sidecar", "second", "app")}
    assert held == {"first": "1-3", "sidecar": "1-3", "second": "4-5", "app": "4"}
    world.heard(body("1"))
    assert (world.holds("p", "sidecar"), world.holds("p", "second")) == ("1", "4-5")
    world.heard(body("2", app="1"))
    world.heard(body("1", app="1"))
    assert world.holds("p", "second") == "2,4"
    assert str(world.engine.ledger.cpus.shared) == "0,3,5-7"
