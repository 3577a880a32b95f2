"""S12, second half: Failed pods that we refused are deleted after their time, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.errors import KubeError
from agent.kube.client import KubeClient
from agent.kube.publishing.cleanup import MINUTE, MOST, Cleanup, CleanupRule, ended, remaining
from agent.kube.publishing.publisher import Publisher
from tests.patience import PATIENCE
from tests.unit.cleanup_cases import END, HOUR, OTHERS, RULE, Body, changed, ours
from tests.unit.reporter_cases import Queue, known, reporter


def test_s12_ours_is_due_when_its_time_has_passed() -> None:
    """Not a second before the retention time since its end, as the API server saw it written; then it is."""
    assert ended(ours()) == END
    assert remaining(ours(), END, RULE) == HOUR
    assert remaining(ours(), END + HOUR - 1, RULE) == 1
    assert remaining(ours(), END + HOUR, RULE) == remaining(ours(), END + 9 * HOUR, RULE) == 0


@pytest.mark.parametrize("name", OTHERS)
def test_s12_nobody_elses_is_ever_due(name: str) -> None:
    """Each of the rule's facts is needed: without it there is no time at which the pod is deleted."""
    assert remaining(changed(name), END + 1e9, RULE) is None


def test_s12_who_is_exempt_now_is_not_deleted() -> None:
    """A pod that is left alone for its priority is, however it failed."""
    body = ours()
    body["spec"]["priority"] = 2_000_000_000
    rule = replace(RULE, exemptions=replace(RULE.exemptions, included=()))
    assert remaining(body, END + 1e9, rule) is None


def test_s12_the_end_is_the_latest_time_that_the_pod_names() -> None:
    """Conditions, containers and writes of the status count, other writes do not; without any it is never due."""
    body = ours()
    body["metadata"]["managedFields"] = []
    assert ended(body) == END - 600
    stopped = {"name": "c", "state": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}}
    body["status"]["containerStatuses"] = [stopped]
    assert ended(body) == END - 300
    for each in ([], [{"lastTransitionTime": "soon"}], [{"lastTransitionTime": "2026-01-01T00:00:00"}], "x", [3]):
        assert ended({"status": {"conditions": each}}) is None
    timeless = ours()
    timeless["metadata"]["managedFields"] = "x"
    timeless["status"]["conditions"][0]["lastTransitionTime"] = None
    assert remaining(timeless, END + 1e9, RULE) is None


class Api(KubeClient):
    """Deletions that are asked for; `answer` is raised."""

    def __init__(self) -> None:
        self.deleted: list[tuple[str, str, str, str | None]] = []
        self.answer: KubeError | None = None

    def delete_pod(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        self.deleted.append((namespace, name, uid, version))
        if self.answer:
            raise self.answer


class Sending(Queue):
    """A publisher whose requests leave when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[str, Callable[[], None]] = {}

    def has_report(self, uid: str) -> bool:
        return False

    def delete(self, uid: str, request: Callable[[], None]) -> None:
        self.requests[uid] = request

    def send(self) -> None:
        """All of them, each once."""
        for uid in list(self.requests):
            self.requests.pop(uid)()


class World:
    """A cleanup with a clock, pods and a rule that the test sets."""

    def __init__(self, *bodies: Body) -> None:
        self.bodies, self.now = list(bodies), END + HOUR
        self.rule: CleanupRule | None = RULE
        self.api, self.queue = Api(), Sending()
        self.count, self.problems = 0, list[str]()
        self.cleanup = Cleanup(
            self.api, self.queue, lambda: self.bodies, lambda: self.rule, count=self._counted,
            problem=self.problems.append, now=lambda: self.now,
        )  # fmt: skip

    def _counted(self) -> None:
        self.count += 1


def test_s12_ours_is_deleted_by_uid_and_version_and_counted() -> None:
    """Of three Failed pods the one of ours whose time has come, as it was when that was decided, and only once."""
    world = World(ours(), ours("young", "2026-01-01T01:30:00Z"), {**changed("b: no word of ours")})
    world.cleanup.turn()
    world.queue.send()
    world.cleanup.turn()
    world.queue.send()
    assert world.api.deleted == [("n", "p", "uid-p", "7")]
    assert (world.count, world.problems) == (1, [])


@pytest.mark.parametrize("what", ["off", "gone", "changed"])
def test_s12_what_is_asked_for_is_decided_again_when_it_is_sent(what: str) -> None:
    """A request that waits is not sent when it was switched off, or the pod is gone or not ours any more."""
    world = World(ours())
    world.cleanup.turn()
    if what == "off":
        world.rule = None
    else:
        world.bodies = [] if what == "gone" else [changed("b: aligned")]
    world.queue.send()
    assert world.api.deleted == []


def test_s12_nothing_is_asked_for_while_it_is_off() -> None:
    """Without the setting, or with the kill switch on, there is no rule, and no request."""
    world = World(ours())
    world.rule = None
    world.cleanup.turn()
    assert world.queue.requests == {}


def test_s12_a_few_a_minute_the_oldest_first() -> None:
    """A node full of Failed pods is cleaned up in turns."""
    world = World(*(ours(f"p{number}", f"2026-01-01T01:{number:02}:00Z") for number in reversed(range(3 * MOST))))
    world.now += HOUR
    for turn in range(1, 4):
        for _ in range(3):
            world.cleanup.turn()
            world.queue.send()
        assert len(world.api.deleted) == turn * MOST
        gone = {uid for _, _, uid, _ in world.api.deleted}
        assert gone == {f"uid-p{number}" for number in range(turn * MOST)}
        world.bodies = [each for each in world.bodies if each["metadata"]["uid"] not in gone]
        world.now += MINUTE


@pytest.mark.parametrize(
    ("status", "remedy"), [(403, "rbac.cleanup"), (422, "upgrade the chart"), (500, ""), (409, "")]
)
def test_s12_a_denial_is_told_once_with_its_remedy(status: int, remedy: str) -> None:
    """The publisher hears of each failure, and the pod is asked for again; a denial is told until one succeeds."""
    world = World(ours())
    world.api.answer = KubeError(status, "no")
    for _ in range(2):
        world.cleanup.turn()
        with pytest.raises(KubeError):
            world.queue.requests["uid-p"]()
        world.now += MINUTE
    assert [remedy in each for each in world.problems] == ([True] if remedy else [])
    world.api.answer = None
    world.queue.send()
    assert (len(world.api.deleted), world.count) == (3, 1)


def test_s12_the_list_after_a_restart_brings_the_failed_pods() -> None:
    """What the reporter heard of pods is all that is needed; while the node is being left there is none."""
    queue = Sending()
    it = reporter(queue)
    known(it, ours())
    assert [remaining(each, END + HOUR, RULE) for each in it.bodies()] == [0]
    it.leave()
    assert it.bodies() == ()
    assert queue.pod_reports[0].annotations["numalign.io/failed"] is None, "uninstalling keeps none (S18)"


def test_s12_fail_leaves_our_word_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark travels in the patch that ends the pod: there is no deadline of ours without it."""
    sent: list[Any] = []
    api = Api()
    monkeypatch.setattr(api, "patch_pod", lambda *args: sent.append(args))
    publisher = Publisher(api, "node-1")
    publisher.fail("uid-p", "n", "p")
    publisher.start()
    publisher.stop(PATIENCE)
    patch = {"metadata": {"annotations": {"numalign.io/failed": "uid-p"}}, "spec": {"activeDeadlineSeconds": 1}}
    assert sent == [("n", "p", "uid-p", patch)]
