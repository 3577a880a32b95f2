"""Whatever tenants write on their pods, the checkpoint stays small, and the next start reads every one written.

Finding 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.core.request.annotations import pod_settings
from agent.errors import BadPodError, CheckpointUnwritableError
from agent.host.checkpoint import Checkpoint
from agent.kube.objects.pod_objects import seen
from agent.model.ledgerjson import ledger_from_json, ledger_to_json
from agent.model.rules import CpuOptions, Policy
from agent.node.tracked_pod import TrackedPod
from tests.flow.told import telling
from tests.flow.world import World, container, manifest

MIB = 1 << 20
FULL = 262_144
"""Bytes of annotations that the API server takes for one object."""


def noted(**notes: str) -> Callable[[str, int], dict[str, Any]]:
    """Makes pods with these annotations."""

    def make(name: str, created: int) -> dict[str, Any]:
        body = manifest(name, {"name": "c", "image": "x"}, created=created)
        body["metadata"]["annotations"] = {f"numalign.io/{key}": value for key, value in notes.items()}
        return body

    return make


def many(name: str, created: int) -> dict[str, Any]:
    """Thousands of annotations that mean nothing."""
    return noted(**{f"x{number:x}": "" for number in range(12_000)})(name, created)


def named(each: Mapping[str, Any], number: int) -> Callable[[str, int], dict[str, Any]]:
    """Makes pods of so many containers with the longest names."""

    def make(name: str, created: int) -> dict[str, Any]:
        return manifest(
            name, *({**each, "name": f"c{index:02}{'x' * 60}"} for index in range(number)), created=created
        )

    return make


def extended(containers: int, resources: int, length: int) -> Callable[[str, int], dict[str, Any]]:
    """Makes pods whose containers ask for many resources of long names."""
    limits = {f"{'d' * length}.example/{index:02}": "1" for index in range(resources)}
    return named({"image": "x", "resources": {"limits": limits}}, containers)


SMALL = {"image": "x", "resources": {"limits": {"cpu": "10m", "memory": "1Mi"}}}
WORST = {
    "one fat value": noted(x="\u0001" * (FULL - 200)),
    "one fat value of ours": noted(devices="\u0001" * (FULL - 200)),
    "every value as long as is read": noted(
        **dict.fromkeys(("policy", "scope", "on-misalignment", "align", "pin", "move-memory", "release"), '"' * 99),
        **dict.fromkeys(("cpu-options", "devices"), "\\" * 499),
    ),
    "many names": many,
    "60 containers of long names": named({"image": "x"}, 60),
    "as many containers as are noted": named({"image": "x"}, 33),
    "as many small ones as are noted": named(SMALL, 16),
    "60 x 50 resources": extended(60, 50, 200),
    "as many resources as are noted": extended(1, 15, 200),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORST)
def test_a_hundred_pods_take_less_than_a_mebibyte(tmp_path: Path, kind: str) -> None:
    """Whatever they carry, at the API's own limits; and the next start reads it."""
    store = Checkpoint(tmp_path / "state" / "checkpoint.json")
    with telling(tmp_path / "tree", machine="2 sockets x 1 node x 64 cores x 1 thread, 64G per node", settings={
        "memoryManagerPolicy": "Static", "evictionHard": {"memory.available": "1Gi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    }) as told:  # fmt: skip
        told.list(
            manifest("victim", container(cpu="4"), created=1),
            *(WORST[kind](f"evil{number}", 10 + number) for number in range(100)),
        )
        assert len(told.world.engine.ledger.grant("victim", "app").cpus or ()) == 4
        size = store.save(told.world.engine.ledger)
        assert size <= MIB
        saved = store.load()
        assert saved is not None
        assert saved.ledger == told.world.engine.ledger
        assert told.alive


def test_an_old_checkpoint_with_fat_annotations_loads_and_shrinks(tmp_path: Path) -> None:
    """As an older version saved it: it is read, the grants stand, and the next save is small."""
    world = World(tmp_path)
    world.run(manifest("db", container(cpu="2"), policy="restricted"))
    body: Any = ledger_to_json(world.engine.ledger)
    body["pods"]["db"]["pod"]["annotations"] |= {
        "numalign.io/x": "\u0001" * FULL, **{f"numalign.io/y{number}": "" for number in range(1000)},
    }  # fmt: skip
    world.store.saved = ledger_from_json(body)
    after = World(tmp_path, store=world.store, pods=world.pods.values())
    assert after.holds("db") == "1-2"
    assert after.engine.pods["db"].settings.policy is Policy.RESTRICTED
    path = tmp_path / "state" / "checkpoint.json"
    assert Checkpoint(path).save(after.engine.ledger) < 4096


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    """A ledger beyond what is read back is refused like one that the disk refuses; the old file stays."""
    world = World(tmp_path)
    small = Checkpoint(tmp_path / "state" / "checkpoint.json", largest=2000)
    before = world.engine.ledger
    assert small.save(before) <= 2000
    for number in range(20):
        world.see(manifest(f"p{number}", container(cpu="100m"), created=number))
    with pytest.raises(CheckpointUnwritableError, match="more than the 2000 that are read back"):
        small.save(world.engine.ledger)
    saved = small.load()
    assert saved is not None
    assert saved.ledger == before


@pytest.mark.parametrize(
    ("kind", "remedy"), [("60 containers of long names", "use shorter names"), ("60 x 50 resources", "ask for fewer")]
)
def test_a_pod_that_is_too_large_to_be_noted_is_told(kind: str, remedy: str) -> None:
    """It is set aside, as one that cannot be read; the sentence says what to do."""
    with pytest.raises(BadPodError, match=rf"^spec.containers: .*{remedy}"):
        seen(WORST[kind]("p", 1))


def test_pods_that_people_write_are_noted() -> None:
    """Sixty pinned containers, or two dozen that share, with names and annotations as they are found."""
    for each, many in (({"cpu": "2", "memory": "1Gi"}, 60), ({"cpu": "100m", "memory": "128Mi"}, 24)):
        body = manifest(
            "p", *({"name": f"worker-{number:02}", "resources": {"limits": each}} for number in range(many)),
            policy="restricted", cpu_options="full-pcpus-only=true, align-by-socket=true",
        )  # fmt: skip
        assert len(seen(body).pod.containers) == many


def test_what_is_kept_of_annotations_is_short_and_told() -> None:
    """A value that is too long is one problem with a short excerpt; names that mean nothing are one problem."""
    pod = seen(
        noted(policy="restricted" + " " * 5000 + "x", **{f"a{each:05}": "v" * 100 for each in range(1000)})("p", 1)
    ).pod
    assert sum(len(key) + len(value) for key, value in pod.annotations.items()) < 500
    settings = pod_settings(pod, CpuOptions(), Policy.NONE)
    assert settings.policy is None
    texts = list(map(str, settings.problems))
    assert [text.partition(":")[0] for text in texts] == ["numalign.io/policy", "numalign.io/a00000"]
    assert "goes on beyond 100 characters" in texts[0]
    assert "and 995 more" in texts[1]
    assert all(len(text) < 500 for text in texts)
    assert TrackedPod(pod, settings).pod.annotations["numalign.io/a00000"] == ""


def test_longer_good_values_are_followed() -> None:
    """All options of the CPU manager, and a dozen devices, are far from the limit."""
    options = ", ".join(f"{name}=false" for name in (
        "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket", "distribute-cpus-across-cores",
        "prefer-align-cpus-by-uncorecache",
    ))  # fmt: skip
    devices = ",".join(f"numalign.io/some-longer-name-{number}=16" for number in range(12))
    pod = seen(noted(**{"cpu-options": options, "devices": devices})("p", 1)).pod
    settings = pod_settings(pod, CpuOptions(), Policy.NONE)
    assert settings.problems == ()
    assert len(settings.devices) == 12
