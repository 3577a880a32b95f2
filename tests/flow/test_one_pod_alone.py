"""Whatever one pod holds, it costs no other pod anything: no thread ends, the rest is decided, and it is told.

Finding 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app.cluster.start import read_start
from agent.core.cgroups import desired as wanted
from agent.errors import InvariantError
from agent.host.device_nodes import Usable
from agent.host.nri.decisions import EngineDecisions
from agent.model.idset import CpuSet
from agent.model.pod import Pod
from agent.model.podspec import pod_from
from agent.observe.health import Health
from agent.observe.threads import watched
from tests.flow.serving import serving, write
from tests.flow.told import Told, telling
from tests.flow.world import World, container, manifest
from tests.patience import PATIENCE, until

DIGITS = "x=" + "1" * 5000


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """A node whose API server takes everything."""
    with telling(tmp_path) as node:
        yield node


def evil(name: str = "evil", **annotations: str) -> dict[str, Any]:
    """A pod that asks for nothing, with annotations of its author's choice."""
    body = manifest(name, {"name": "c", "image": "x"}, created=1, namespace="tenant")
    body["metadata"]["annotations"] = {f"numalign.io/{key}": value for key, value in annotations.items()}
    return body


def failing(*names: str) -> Any:  # noqa: ANN401 - a question of the engine
    """A question about pods that goes wrong with some of them, in a way that nobody expects."""

    def question(pod: Pod) -> str:
        if pod.name in names and pod.annotations.get("numalign.io/policy") == "restricted":
            raise ZeroDivisionError("of a kind that nobody expects")
        return ""

    return question


def test_a_count_of_5000_digits_is_a_problem_of_its_pod_alone(told: Told) -> None:
    """numalign.io/devices with a number that Python refuses: told on the pod; its neighbour is pinned."""
    bad, victim = evil(devices=DIGITS), manifest("victim", container(cpu="2"), created=2)
    told.list(bad, victim)
    told.settled()
    assert told.world.holds("victim") == "1-2"
    assert told.alive
    (event,) = told.api.events("evil")
    assert event["reason"] == "BadAnnotation"
    assert "numalign.io/devices" in event["message"]
    assert len(event["message"]) < 400


def test_the_same_as_default_of_a_namespace(tmp_path: Path) -> None:
    """A namespace's annotation is read for each of its pods, and ends no thread either."""
    with telling(tmp_path, defaults={"numalign.io/devices": DIGITS}) as told:
        told.list(manifest("victim", container(cpu="2")))
        assert told.world.holds("victim") == "1-2"
        assert told.alive


def test_the_same_through_the_runtime(tmp_path: Path) -> None:
    """A pod that the runtime starts before the watch brought it: the news after it are carried out."""
    world = World(tmp_path, exempt=failing("evil"))
    world.engine.pods_listed(set())
    health = Health()
    with watched(health, lambda: None):
        decisions = EngineDecisions(world.engine, lambda _address: Usable(()))
        decisions.start()
        for annotations in ({"devices": DIGITS}, {"policy": "restricted"}):
            decisions.decide(pod_from(evil(**annotations)))
        decisions.decide(pod_from(manifest("victim", container(cpu="2"))))
        until(lambda: world.holds("victim") == "1-2")
        assert decisions.stop(PATIENCE)
    assert health.live()[0]


def test_the_same_in_a_folder_of_manifests(tmp_path: Path) -> None:
    """`numalign run --pods` serves the other manifests."""
    (tmp_path / "pods").mkdir()
    write(tmp_path / "pods", "evil", {"name": "c", "image": "x"}, devices=DIGITS)
    with serving(tmp_path, processes=False) as node:
        write(tmp_path / "pods", "victim", container(cpu="2"))
        until(lambda: node.held().get("victim") == "1-2")
        assert node.node.health.live()[0]


def test_a_fault_of_any_kind_sets_one_pod_aside(tmp_path: Path) -> None:
    """A pod with which deciding goes wrong: told, and on the shared pool; those beside it are decided."""
    with telling(tmp_path, exempt=failing("evil")) as told:
        told.list(
            manifest("first", container(cpu="2"), created=1), evil(policy="restricted"),
            manifest("last", container(cpu="2"), created=3),
        )  # fmt: skip
        told.settled()
        assert (told.world.holds("first"), told.world.holds("last")) == ("1-2", "4-5")
        assert told.alive
        assert told.api.condition("evil")["status"] == "False"
        assert "fault of its own" in told.api.condition("evil")["message"]
        assert [what for what, _ in told.world.ears.problems] == ["set-aside"]
        told.world.check()


def test_a_pod_that_was_set_aside_is_tried_again_when_it_changes(tmp_path: Path) -> None:
    """The same once more is not tried; another word is, and then it gets what it asks for."""
    with telling(tmp_path, exempt=failing("late")) as told:
        bad = manifest("late", container(cpu="2"), policy="restricted")
        told.list(bad)
        told.list(bad)
        assert told.world.holds("late") == ""
        assert len(told.world.ears.problems) == 1
        told.list(manifest("late", container(cpu="2"), policy="best-effort"))
        assert told.world.holds("late") == "1-2"


def test_s13_a_holder_that_is_set_aside_keeps_what_it_holds(tmp_path: Path) -> None:
    """A pinned pod whose author writes nonsense later keeps its CPUs, and gives them back when it is gone."""
    with telling(tmp_path, exempt=failing("db")) as told:
        told.list(manifest("db", container(cpu="2")))
        told.world.pods["db"] = pod_from(manifest("db", container(cpu="2")))
        told.world.start("db")
        broken = manifest("db", container(cpu="2"))
        broken["metadata"]["annotations"] = {"numalign.io/policy": 7}
        for bad in (manifest("db", container(cpu="2"), policy="restricted"), broken):
            told.list(bad)
            told.world.engine.reconcile()
            assert told.world.holds("db") == "1-2"
            assert told.world.effective("db") == "1-2"
        told.world.end("db")
        told.world.engine.reconcile()
        assert told.world.holds("db") == "1-2", "it is still in the API: its next container gets the same"
        told.intake.pod_deleted(broken)
        until(lambda: told.world.holds("db") == "")


def test_s13_after_a_restart_an_unreadable_pod_of_the_checkpoint_keeps_its_cpus(tmp_path: Path) -> None:
    """The first list brings it with nonsense in it: it is there, so nothing of it is freed."""
    before = World(tmp_path)
    before.run(manifest("db", container(cpu="2")))
    broken = manifest("db", container(cpu="2"))
    broken["spec"]["containers"][0]["resources"] = "nonsense"
    with telling(tmp_path, store=before.store) as told:
        told.world.end("db")
        told.list(broken, manifest("other", container(cpu="2"), created=2))
        told.world.engine.reconcile()
        assert told.world.holds("db") == "1-2"
        assert told.world.holds("other") == "4-5"
        told.intake.pod_deleted(broken)
        until(lambda: told.world.holds("db") == "")


def test_a_restart_reads_annotations_that_cannot_be_read(tmp_path: Path) -> None:
    """A pod of the checkpoint with any annotation: the next start serves it, and the others."""
    before = World(tmp_path)
    before.run(manifest("db", container(cpu="2"), devices=DIGITS))
    after = World(tmp_path, store=before.store, pods=before.pods.values())
    assert after.holds("db") == "1-2"
    after.check()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"metadata": "text"}, {"metadata": {"uid": {"a": 1}, "name": [], "namespace": {}}}, {},
        {"metadata": {"uid": "u", "name": "n"}, "spec": {"containers": [{"name": "c"}] * 600}},
        {"metadata": {"uid": "u", "name": "n", "annotations": []}, "spec": [], "status": 3},
    ],
)  # fmt: skip
def test_events_of_any_shape_end_no_thread(told: Told, nonsense: Mapping[str, Any]) -> None:
    """Objects that the API server would not even store."""
    told.see(nonsense)
    told.intake.pod_deleted(nonsense)
    told.list(manifest("victim", container(cpu="2")))
    assert told.world.holds("victim") == "1-2"
    assert told.alive


def test_a_start_reads_the_pods_that_can_be_read() -> None:
    """One pod that is nonsense costs the first list nothing else."""

    class Client:
        def get(self, _path: str) -> dict[str, Any]:
            return {}

        def call(self, *_: object, **__: object) -> dict[str, Any]:
            return {"items": [{"metadata": "text"}, evil(devices=DIGITS), 7, manifest("victim")]}

    start = read_start(Client(), "n1", lambda _name: {})  # type: ignore[arg-type] # what of the client is used
    assert [pod.name for pod in start.pods] == ["evil", "victim"]
    assert start.listed


def test_a_teller_that_fails_keeps_nobody_from_being_pinned(tmp_path: Path) -> None:
    """Telling goes wrong for one pod: its neighbours are decided, enforced and told."""

    class Failing:
        def admitted(self, pod: Pod, *_: object) -> None:
            if pod.name == "evil":
                raise KeyError(pod.name)

        def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - the rest of a Reporter
            return lambda *_: None

    world = World(tmp_path, reporters=[Failing()])
    world.engine.pods_listed(set())
    world.see(evil(), manifest("victim", container(cpu="2"), created=2))
    assert world.holds("victim") == "1-2"
    assert world.ears.admitted_ == ["evil", "victim"]


def test_one_pod_that_breaks_the_engine_is_found_in_its_batch(tmp_path: Path) -> None:
    """An engine that refuses a whole batch because of one pod is asked again, pod by pod."""
    seen: list[list[str]] = []

    class Engine:
        def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
            seen.append([pod.name for pod in pods])
            if any(pod.name == "evil" for pod in pods):
                raise InvariantError("a rule that never breaks was broken")

        def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - the rest of an engine
            return lambda *_: None

    with telling(tmp_path) as told:
        told.intake.stop()
        other = type(told.intake)(Engine(), told.reporter, failed=told.failures.append)
        for body in (manifest("a"), evil(), manifest("b")):
            other.pod_changed(body)
        other.start()
        until(lambda: len(seen) == 4)
        other.stop()
    assert seen == [["a", "evil", "b"], ["a"], ["evil"], ["b"]]
    assert told.failures == ["a rule that never breaks was broken"]


def test_a_list_that_cannot_be_followed_ends_no_thread(tmp_path: Path) -> None:
    """An engine that stumbles over a whole list: told, and the pod that comes after it is decided."""
    seen: list[str] = []

    class Engine:
        def pods_listed(self, _uids: frozenset[str]) -> None:
            raise InvariantError("a rule that never breaks was broken")

        def pods_seen(self, pods: list[Pod], *, ran: frozenset[str]) -> None:
            seen.extend(pod.name for pod in pods)

        def __getattr__(self, _name: str) -> Any:  # noqa: ANN401 - the rest of an engine
            return lambda *_: None

    with telling(tmp_path) as told:
        told.intake.stop()
        other = type(told.intake)(Engine(), told.reporter, failed=told.failures.append)
        other.pods_listed(frozenset())
        other.start()
        until(lambda: bool(told.failures) or not told.alive)
        other.pod_changed(manifest("a"))
        until(lambda: bool(seen) or not told.alive)
        other.stop()
        assert told.alive
    assert (seen, told.failures) == (["a"], ["a rule that never breaks was broken"])


def test_lists_of_ids_of_5000_digits_are_malformed() -> None:
    """What a runtime has on record for a container is text, too."""
    with pytest.raises(ValueError, match="no number or range"):
        CpuSet.parse("1" * 5000)


def failing_for(question: Callable[..., Any], uid: str) -> Callable[..., Any]:
    """A question about pods that goes wrong with one of them, in a way that nobody expects."""

    def asked(ledger: Any, of: str, *more: Any) -> Any:  # noqa: ANN401 - the question's own
        if of == uid:
            raise ZeroDivisionError("of a kind that nobody expects")
        return question(ledger, of, *more)

    return asked


@pytest.mark.parametrize("name", ["share", "pool_of", "own_of"])
def test_sets_that_cannot_be_worked_out_are_one_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its cgroups stay; its neighbour, which came after it, is pinned; a fault is told once, and its end heals it."""
    world = World(tmp_path)
    world.engine.pods_listed(set())
    world.run(manifest("evil", container(cpu="2"), created=1))
    world.engine.reconcile()
    held = world.effective("evil")
    with monkeypatch.context() as patched:
        patched.setattr(wanted, name, failing_for(getattr(wanted, name), "evil"))
        world.run(manifest("victim", container(cpu="2"), created=2))
        world.run(manifest("shared", {"name": "app", "image": "x"}, created=3))
        world.engine.reconcile()
        world.engine.reconcile()
        assert world.effective("victim") == world.holds("victim") != ""
        assert world.effective("evil") == held
        assert not set(world.effective("shared")) & {*held, *world.holds("victim")} - {"-", ","}
        assert "left as they are" in world.ears.unenforced["evil"][""]
        assert world.ears.unenforced.get("victim", {}) == {}
        assert len([text for what, text in world.ears.problems if what == "set-aside"]) == 1
    world.engine.reconcile()
    assert world.effective("evil") == world.holds("evil")
    world.check()
