"""`numalign explain` and `numalign plan` on what an agent left: answers, exit codes, JSON, and nothing written."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from agent.app.offline.queries import manifests, open_queries
from agent.app.standalone.build import StandaloneOptions, standalone_node
from agent.app.statedir import state_file
from agent.app.statedir import unplaced_pods as unplaced
from agent.cli import explain_show, group
from agent.errors import HostError, SettingsError
from agent.host.checkpoint import sealed
from agent.node.deciding import checked_settings
from agent.node.device_tracker import DeviceTracker
from agent.node.state import State
from agent.node.tracked_pod import TrackedPod
from tests.flow.world import container, manifest

MACHINE = "synthetic:2 sockets x 1 node x 4 cores, 8G per node"
SETTINGS = {"topologyManagerPolicy": "single-numa-node", "onMisalignment": "fail", "reservedSystemCPUs": "0"}


class Left:
    """A state folder that an agent left, with three pods: two are in, checkout is refused; dns is left alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.yaml"
        self.config.write_text(yaml.safe_dump(SETTINGS), "utf-8")
        self.pods = folder / "pods"
        self.pods.mkdir()
        for number, (name, cpus) in enumerate((("cart", 2), ("search", 2), ("checkout", 3), ("dns", 1))):
            body = manifest(name, container("app", cpu=str(cpus)))
            body["metadata"] |= {"namespace": "kube-system" if name == "dns" else "shop"}
            body["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{number}Z"
            (self.pods / f"{number}.yaml").write_text(yaml.safe_dump(body), "utf-8")
        options = StandaloneOptions(
            pods=self.pods, state=folder / "state", config=self.config, root=MACHINE, processes=False
        )
        with standalone_node(options) as node:
            node.once()

    def ask(self, *arguments: str) -> Result:
        """Run the command on the folder."""
        where = ("--state-dir", str(self.folder / "state"), "--config", str(self.config), "--root", MACHINE)
        return CliRunner().invoke(group, [*arguments, *where], env={"COLUMNS": "160"})

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Every file with its bytes and its time."""
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Made once: nothing here may change it."""
    return Left(tmp_path_factory.mktemp("left"))


def test_a_refused_pod_is_known_by_name_after_the_agent_ended(left: Left) -> None:
    """A pod that is not in the ledger is explained all the same, by name, key and uid; exit code 1."""
    uid = next(iter(each for each, found in unplaced.load(left.folder / "state").pods.items() if found.refusal))
    said = []
    for name in ("checkout", "shop/checkout", uid):
        found = left.ask("explain", name)
        assert found.exit_code == 1, found.output
        said.append(found.output)
    assert len(set(said)) == 1
    assert "shop/checkout is refused (TopologyAffinityError)" in said[0]
    assert "No one NUMA node has 3 CPUs free: NUMA node 0 has 1, 1 has 2." in said[0]
    assert "when shop/cart ends (it holds CPUs 1-2 on NUMA node 0): CPUs 1-3 on NUMA node 0" in said[0]


def test_a_pod_that_is_in_and_one_that_is_left_alone(left: Left) -> None:
    """Both have exit code 0, and say why."""
    found = left.ask("explain", "cart")
    assert (found.exit_code, found.output.splitlines()[0]) == (0, "shop/cart is aligned")
    alone = left.ask("explain", "dns")
    assert alone.exit_code == 0
    assert "Namespace kube-system is left alone (excludedNamespaces)." in alone.output


def test_json_and_text_say_the_same(left: Left) -> None:
    """Every sentence of the JSON is in the text; details add the hints and the kubelet's own words."""
    body = json.loads(left.ask("explain", "checkout", "-o", "json").output)
    assert (body["verdict"], body["refusal"]["reason"]) == ("refused", "TopologyAffinityError")
    text = left.ask("explain", "checkout").output
    for remedy in body["remedies"]:
        assert remedy["sentence"] in " ".join(text.split())
    details = left.ask("explain", "checkout", "--details").output
    assert "none: it takes 2, not 1" in details
    assert "Resources cannot be allocated with Topology locality" in details


def test_where_would_it_fit(left: Left, tmp_path: Path) -> None:
    """A manifest is asked about beside the pods that are there; without a ledger, on the empty machine."""
    file = tmp_path / "new.yaml"
    documents = [manifest("small", container("app", cpu="2")), manifest("large", container("app", cpu="4"))]
    file.write_text(yaml.safe_dump_all(documents), "utf-8")
    found = left.ask("explain", "--manifest", str(file))
    assert found.exit_code == 1  # large
    assert "default/small would be aligned" in found.output
    assert "default/large would be refused" in found.output
    one = left.ask("explain", "small", "--manifest", str(file), "-o", "json")
    assert (one.exit_code, json.loads(one.output)["got"][0]["cpus"]) == (0, "6-7")
    arguments = ["explain", "--manifest", str(file), "--config", str(left.config), "--root", MACHINE]
    empty = CliRunner().invoke(group, arguments, env={"COLUMNS": "160"})
    assert "default/large would be aligned" in empty.output
    assert "No ledger in /var/lib/numalign: an empty node is taken." in empty.output


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("fixed", "app: CPUs 5,7,12-13,15 share one L3 cache: 4-7,12-15."),
        ("kubelet-1.37", "app: CPUs 3,5,11-13 lie in 2 L3 caches: 0-3,8-11 | 4-7,12-15."),
    ],
)
def test_details_say_in_which_l3_caches_the_cpus_lie(tmp_path: Path, answers: str, said: str) -> None:
    """With prefer-align-cpus-by-uncorecache: defect D20 (kubernetes issue 137315) is seen, and that it is mended."""
    file, config = tmp_path / "five.yaml", tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(manifest("five", container("app", cpu="5"))), "utf-8")
    options = {"prefer-align-cpus-by-uncorecache": "true"}
    settings = {
        "reservedSystemCPUs": "0-2,4,6,8-10", "cpuManagerPolicyOptions": options, "compatibility": answers,
    }  # fmt: skip
    config.write_text(yaml.safe_dump(settings), "utf-8")
    machine = "synthetic:1 socket x 1 node x 8 cores x 2 threads, 8 CPUs per L3"
    arguments = ["explain", "--manifest", str(file), "--config", str(config), "--root", machine, "--details"]
    assert said in CliRunner().invoke(group, arguments, env={"COLUMNS": "160"}).output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("explain", "nobody"), 'no pod "nobody" is known here; known are kube-system/dns, shop/cart'),
        (("explain",), "name a pod, or the --manifest of one"),
        (("plan",), "name another --policy, --scope or --exclusive, or --repack"),
    ],
)
def test_wrong_questions_are_told(left: Left, arguments: tuple[str, ...], why: str) -> None:
    """One sentence with the remedy, of the kind that ends with exit code 2."""
    found = left.ask(*arguments)
    assert isinstance(found.exception, SettingsError)
    assert why in str(found.exception)


def test_a_name_of_several_pods_and_a_foreign_machine(left: Left) -> None:
    """Both are told with what to write instead; a folder without a ledger is a fault of its own."""
    desk = open_queries(left.folder / "state", left.config, MACHINE)
    with pytest.raises(SettingsError, match="is of machine"):
        open_queries(left.folder / "state", left.config, "two-sockets")
    with pytest.raises(HostError, match="no agent has saved anything"):
        open_queries(left.folder, left.config, MACHINE)
    record = next(iter(desk.ledger.pods.values()))
    twin = replace(record, pod=replace(record.pod, uid="twin", namespace="other"))
    several = replace(desk, ledger=replace(desk.ledger, pods={**desk.ledger.pods, "twin": twin}))
    with pytest.raises(SettingsError, match="names several pods; give namespace/name or uid"):
        several.find(record.pod.name)


def test_plan_tells_who_would_be_refused_or_elsewhere(left: Left) -> None:
    """Another policy lets the refused pod in; exit code 0 since nobody who runs would be refused."""
    found = left.ask("plan", "--policy", "best-effort", "-o", "json")
    body = json.loads(found.output)
    assert found.exit_code == 0
    assert {each["pod"]: each["change"] for each in body["pods"]} == {
        "shop/cart": "same", "shop/search": "same", "shop/checkout": "let-in", "kube-system/dns": "left-alone",
    }  # fmt: skip
    assert body["policy"] == {"now": "single-numa-node", "then": "best-effort"}
    text = left.ask("plan", "--policy", "best-effort", "--details").output
    assert "would have CPUs 3,6-7 on NUMA nodes 0-1" in text
    assert "Nothing was changed" in text


def test_a_repack_says_what_it_gains(left: Left) -> None:
    """Packed largest first, the refused pod finds room too."""
    body = json.loads(left.ask("plan", "--repack", "-o", "json").output)
    assert (body["order"], body["ordersTried"]) == ("largest", ["admission", "largest", "bound"])
    assert body["counts"]["let-in"] == 1
    assert "the best of 3 orders" in " ".join(left.ask("plan", "--repack").output.split())


def test_nothing_is_written(left: Left) -> None:
    """After all questions every file of the state folder has the bytes and the time that it had; none was added."""
    before = left.files()
    for arguments in (
        ("explain", "checkout", "-v"), ("explain", "cart"), ("plan", "--policy", "none"), ("plan", "--repack"),
    ):  # fmt: skip
        assert left.ask(*arguments).exit_code in (0, 1)
    assert left.files() == before


@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit_the_terminal(left: Left, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is longer than the terminal is wide, with details too; colours only where the terminal shows them."""
    monkeypatch.setenv("TERM", "xterm")  # the tests' own terminal may have no colours
    monkeypatch.delenv("NO_COLOR", raising=False)
    desk = open_queries(left.folder / "state", left.config, MACHINE)
    found = [desk.explain(pod) for pod in desk.pods().values()]
    for colours in (False, True):
        stream = io.StringIO()
        target = Console(file=stream, width=width, force_terminal=colours, highlight=False)
        explain_show.show(found, details=True, target=target)
        text = stream.getvalue()
        assert ("\x1b[" in text) == colours
        if not colours:
            assert max(map(len, text.splitlines())) <= width


def test_who_is_outside_is_kept_only_when_it_changed(left: Left, tmp_path: Path) -> None:
    """Damaged or foreign files are nobody; the same snapshot is written once."""
    state: Any = tmp_path
    assert unplaced.load(state) == unplaced.Unplaced()
    parts: list[Any] = [{"pods": {"x": {"pod": 3}}}, {"pods": [], "moons": {}}]
    for part in parts:
        state_file.keep(state, unplaced=part)
        assert unplaced.load(state) == unplaced.Unplaced()
    (tmp_path / state_file.FILE).write_bytes(sealed({"unplaced": {"pods": {}}}, 99, repr))
    assert unplaced.load(state) == unplaced.Unplaced()
    kept = unplaced.load(left.folder / "state").pods
    assert sorted(each.pod.key for each in kept.values()) == ["kube-system/dns", "shop/checkout"]
    assert next(each.exempt for each in kept.values() if each.pod.name == "dns")


def test_refused_pods_stay_known_after_they_are_gone(left: Left, tmp_path: Path) -> None:
    """What was kept survives a restart and the pod's end; one that gets in, or comes anew, is not taken for it."""
    kept = unplaced.load(left.folder / "state").pods
    (tmp_path / state_file.FILE).write_bytes((left.folder / "state" / state_file.FILE).read_bytes())
    uid, refused = next((uid, each) for uid, each in kept.items() if each.refusal)
    desk = open_queries(left.folder / "state", left.config, MACHINE)
    book = unplaced.UnplacedPods(tmp_path)
    book.follow(State(desk.ledger, desk.node, DeviceTracker(desk.node)))  # nobody of then is known any more
    gone = unplaced.load(tmp_path).pods
    assert {each.pod.name: each.gone for each in gone.values()} == {"checkout": True}
    found = replace(desk, outside=gone)
    assert found.find("checkout").uid == uid
    assert found.explain(refused.pod).notes[0] == "the pod is gone; all numbers are those of now"
    anew = replace(refused, pod=replace(refused.pod, uid="anew", created=refused.pod.created + 1))
    assert replace(desk, outside={**gone, "anew": anew}).find("shop/checkout").uid == "anew"
    both = {**gone, "anew": replace(anew, gone=True)}
    assert replace(desk, outside=both).find("checkout").uid == "anew", "of two that are gone the newer one"
    inside = TrackedPod(refused.pod, checked_settings(desk.node, refused.pod))
    book.follow(State(desk.ledger, desk.node, DeviceTracker(desk.node), {uid: inside}))
    assert unplaced.load(tmp_path) == unplaced.Unplaced()


def test_state_shows_who_is_refused_and_left_alone(left: Left) -> None:
    """The table and the JSON of numalign state have the pods that hold nothing, too, with the reason."""
    body = json.loads(left.ask("state", "--output", "json").output)
    states = {each["pod"]: each["state"] for each in body["containers"]}
    assert states["shop/checkout"] == "refused"
    assert states["kube-system/dns"] == "left alone"
    told = " ".join(left.ask("state").output.split())
    assert "refused no one NUMA node has 3 CPUs free: NUMA node 0 has 1, 1 has 2" in told, told


def test_a_question_about_a_deployment_is_about_one_pod_of_it(left: Left, tmp_path: Path) -> None:
    """The first replica stands for all; of a job one of each role. A file with a fault costs the rest nothing."""
    template = manifest("small", container("app", cpu="2"))
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 3, "template": {"metadata": {}, "spec": template["spec"]}}}  # fmt: skip
    other = {**body, "metadata": {"name": "api"}}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump_all([body, other]), "utf-8")
    asked = [pod.name for pod, _ in manifests(tmp_path / "web.yaml").pods]
    assert len(asked) == 2
    assert [name.startswith(owner) for name, owner in zip(asked, ("web", "api"), strict=True)] == [True, True]
    role = {"template": {"spec": template["spec"]}}
    roles = {"Launcher": role, "Worker": {**role, "replicas": 2}}
    job = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "m"},
        "spec": {"roles": roles},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job), "utf-8")
    assert [pod.name for pod, _ in manifests(tmp_path / "job.yaml").pods] == ["m-launcher-0", "m-worker-0"]
    (tmp_path / "job.yaml").unlink()
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(manifest("good", container("app", cpu="1"))), "utf-8")
    (tmp_path / "bad.yaml").write_text("kind: Pod\nspec: [", "utf-8")
    found = manifests(tmp_path)
    assert [pod.name for pod, _ in found.pods] == ["good", *asked]
    (wrong,) = found.wrong
    assert wrong.startswith(f"{tmp_path}/bad.yaml: is not YAML")
    (tmp_path / "none.yaml").write_text("kind: Service", "utf-8")
    with pytest.raises(
        SettingsError, match=r"no pods are here to be placed: left out are 1 Service \(it makes no pods"
    ):
        manifests(tmp_path / "none.yaml")
    with pytest.raises(SettingsError, match=r"bad\.yaml: is not YAML"):
        manifests(tmp_path / "bad.yaml")


def test_a_manifest_may_come_from_a_pipe(left: Left) -> None:
    """`cat pod.yaml | numalign explain --manifest -` answers as for a file."""
    text = yaml.safe_dump(manifest("small", container("app", cpu="2")))
    where = ["--state-dir", str(left.folder / "state"), "--config", str(left.config), "--root", MACHINE]
    found = CliRunner().invoke(group, ["explain", "--manifest", "-", *where], input=text, env={"COLUMNS": "160"})
    assert found.exit_code == 0, found.output
    assert "default/small would be aligned" in found.output
