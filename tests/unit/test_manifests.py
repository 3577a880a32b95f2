"""A folder of manifests: every shape that is read, every mistake that is told with file and remedy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.errors import HostError
from agent.host.manifests import LARGEST, Follower, ManifestFolder, read_folder
from tests.patience import PATIENCE

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers:
    - {name: app, resources: {limits: {cpu: "2", memory: 1Gi}}}
"""


def pod(name: str, **changes: str) -> str:
    """A manifest; keyword arguments replace text in it."""
    text = POD.replace("NAME", name)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def names(folder: ManifestFolder) -> list[str]:
    """Pod names, in order."""
    return [each.name for each in folder.pods]


def test_files_are_read_in_order_and_documents_too(tmp_path: Path) -> None:
    """YAML, JSON, several documents, a List; other files and hidden ones are not looked at."""
    (tmp_path / "20.yml").write_text(pod("c") + "---\n" + pod("d") + "---\n", "utf-8")
    (tmp_path / "10.json").write_text(
        '{"kind": "PodList", "items": [{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers":'
        ' [{"name": "x"}]}}, {"kind": "Pod", "metadata": {"name": "b"}, "spec": {"containers": [{"name": "x"}]}}]}',
        "utf-8",
    )
    (tmp_path / ".e.yaml").write_text("broken: [", "utf-8")
    (tmp_path / "notes.txt").write_text("broken: [", "utf-8")
    folder = read_folder(tmp_path)
    assert (names(folder), folder.wrong) == (["a", "b", "c", "d"], ())
    assert sorted(folder.pods, key=lambda each: (each.created, each.uid)) == list(folder.pods)


def test_one_file_can_be_named(tmp_path: Path) -> None:
    """--pods takes a file, too."""
    (tmp_path / "a.yaml").write_text(pod("a"), "utf-8")
    assert names(read_folder(tmp_path / "a.yaml")) == ["a"]


def test_a_uid_is_made_from_all_that_a_manifest_means(tmp_path: Path) -> None:
    """Same meaning, same pod (comments and file do not count); other meaning, another pod; a named uid stays."""
    (tmp_path / "a.yaml").write_text(pod("a"), "utf-8")
    first = read_folder(tmp_path).pods[0].uid
    (tmp_path / "a.yaml").rename(tmp_path / "b.yaml")
    (tmp_path / "b.yaml").write_text("# moved\n" + pod("a"), "utf-8")
    assert read_folder(tmp_path).pods[0].uid == first
    (tmp_path / "b.yaml").write_text(pod("a", **{'cpu: "2"': 'cpu: "3"'}), "utf-8")
    assert read_folder(tmp_path).pods[0].uid != first
    (tmp_path / "b.yaml").write_text(pod("a", **{"{name: a}": "{name: a, uid: mine}"}), "utf-8")
    assert read_folder(tmp_path).pods[0].uid == "mine"


WRONG = [
    ("a: [", "a.yaml: is not YAML in line "),
    ("a: b: c", "a.yaml: is not YAML in line 1: mapping values are not allowed"),
    ("\tkind: Pod", "a.yaml: is not YAML in line 1: a tab is here; indent with spaces"),
    ("- kind: Pod", "a.yaml: metadata: must be a mapping"),
    ("just words", "a.yaml: is no object"),
    ("!!python/object/apply:os.system [ls]", "a.yaml: is not YAML in line 1: could not determine a constructor"),
    ("kind: Deployment\nmetadata: {name: a}", "a.yaml: kind: 1 Deployment left out; only Pod can be served"),
    ("kind: Pod\nmetadata: {}\nspec: {containers: [{name: x}]}", "a.yaml: metadata.name: is missing"),
    (pod("A"), "a.yaml: metadata.name: 'A' is not a DNS subdomain name"),
    (pod("a", **{'"2"': '"-2"'}), "is negative"),
    (pod("a", **{'"2"': '"two"'}), '"two" is not a quantity'),
    (pod("a", **{"    - {name: app": "    - {nome: app"}), "spec.containers[0].name: is missing"),
    ("kind: Pod\nmetadata: {name: a}\nspec: {containers: []}", "spec.containers: a pod needs at least one container"),
    ("kind: Pod\nmetadata: {name: a}\nspec: 7", "spec: "),
    (pod("a") + "---\n" + pod("a"), "a.yaml, document 2: pod default/a is in a.yaml already"),
    ("x" * (LARGEST + 1), "is larger than"),
    ("&a [*a, *a]", "a.yaml: "),
    (
        "kind: Pod\nmetadata: {name: a, creationTimestamp: yesterday}\nspec: {containers: [{name: x}]}",
        "is not a time",
    ),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG)
def test_mistakes_are_told_and_keep_nobody_else_out(tmp_path: Path, text: str, sentence: str) -> None:
    """One sentence with the file and the field; the other pods are served."""
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    (tmp_path / "b.yaml").write_text(pod("other"), "utf-8")
    folder = read_folder(tmp_path)
    assert sentence in str(folder.wrong[0])
    assert names(folder)[-1] == "other"
    assert "Traceback" not in str(folder.wrong)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\xff\xfe", "is neither YAML nor JSON"),
        (b"{", "is neither YAML nor JSON: Expecting property name"),
        (b"[" * 100_000, "is neither YAML nor JSON"),
        (b"null", None),
        (b"1e999", "is no object"),
    ],
)
def test_json_mistakes(tmp_path: Path, data: bytes, sentence: str | None) -> None:
    """Bytes that are no text, nesting without end, numbers without sense; null is an empty file."""
    (tmp_path / "a.json").write_bytes(data)
    wrong = read_folder(tmp_path).wrong
    assert (sentence is None and not wrong) or (sentence is not None and sentence in str(wrong[0]))


def test_a_list_that_is_too_long_is_told(tmp_path: Path) -> None:
    """What of it is not served is no secret."""
    spec = {"containers": [{"name": "app"}]}
    items = [{"kind": "Pod", "metadata": {"name": f"p{n}"}, "spec": spec} for n in range(1001)]
    (tmp_path / "a.json").write_text(json.dumps({"kind": "List", "items": items}), "utf-8")
    folder = read_folder(tmp_path)
    assert len(folder.pods) == 1000
    assert [str(each) for each in folder.wrong] == [
        "a.json: its list holds 1001 objects, only 1000 are served; split it"
    ]


def test_a_damaged_file_keeps_its_pods_and_a_removed_one_does_not(tmp_path: Path) -> None:
    """What a reading lacks because a file is damaged is taken from the last one."""
    (tmp_path / "a.yaml").write_text(pod("a") + "---\n" + pod("b"), "utf-8")
    (tmp_path / "c.yaml").write_text(pod("c"), "utf-8")
    last = read_folder(tmp_path)
    (tmp_path / "a.yaml").write_text(pod("a") + "---\nkind: [", "utf-8")
    (tmp_path / "c.yaml").unlink()
    now = read_folder(tmp_path).keeping(last)
    assert names(now) == ["a", "b"]
    (tmp_path / "a.yaml").write_text(pod("a"), "utf-8")
    assert names(read_folder(tmp_path).keeping(now)) == ["a"]


def test_a_pod_that_moved_to_another_file_is_there_once(tmp_path: Path) -> None:
    """Its old file is damaged meanwhile: the new place counts."""
    (tmp_path / "a.yaml").write_text(pod("a"), "utf-8")
    last = read_folder(tmp_path)
    (tmp_path / "a.yaml").write_text("kind: [", "utf-8")
    (tmp_path / "b.yaml").write_text(pod("a"), "utf-8")
    assert names(read_folder(tmp_path).keeping(last)) == ["a"]


def test_a_folder_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    """Reading and following it, both name the path."""
    with pytest.raises(HostError, match="nowhere: cannot be read"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(HostError, match="cannot be watched"):
        Follower(tmp_path / "nowhere" / "deeper", lambda: None)


def test_a_change_is_heard_once_it_settled(tmp_path: Path) -> None:
    """Many writes in a row are one call; after stop there is none."""
    heard = threading.Semaphore(0)
    follower = Follower(tmp_path, heard.release)
    follower.start()
    for number in range(5):
        (tmp_path / f"{number}.yaml").write_text(pod("a"), "utf-8")
    assert heard.acquire(timeout=PATIENCE)
    follower.stop()
    while heard.acquire(blocking=False):  # how many calls five writes are is the machine's affair
        pass
    (tmp_path / "late.yaml").write_text(pod("b"), "utf-8")
    assert not heard.acquire(timeout=0.3)


@pytest.mark.parametrize(
    "change",
    [
        Path.unlink,
        lambda file: file.chmod(0o600),
        lambda file: file.rename(file.parent.parent / "away.yaml"),
        lambda file: (file.parent.parent / "other.yaml").rename(file),
        lambda file: file.write_text(pod("b"), "utf-8"),
    ],
    ids=["deleted", "readable now", "moved away", "moved here", "written"],
)
def test_every_kind_of_change_is_heard(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """A pod whose manifest goes, or can be read at last, is not noticed half a minute later."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "a.yaml").write_text(pod("a"), "utf-8")
    (tmp_path / "other.yaml").write_text(pod("c"), "utf-8")
    heard = threading.Event()
    follower = Follower(folder, heard.set, rescan=600)
    follower.start()
    change(folder / "a.yaml")
    assert heard.wait(PATIENCE)
    follower.stop()


def test_a_rescan_comes_without_any_event(tmp_path: Path) -> None:
    """Where the kernel tells nothing (a folder that was replaced), the slow look finds it."""
    heard = threading.Event()
    follower = Follower(tmp_path, heard.set, rescan=0.4)
    follower.start()
    assert heard.wait(PATIENCE)
    follower.stop()


def test_a_pod_whose_name_is_to_be_generated_is_served(tmp_path: Path) -> None:
    """The same manifest has the same name at each reading, so that it is the same pod after a restart."""
    (tmp_path / "a.yaml").write_text(pod("a", **{"{name: a}": "{generateName: train-}"}), "utf-8")
    (first,), (again,) = read_folder(tmp_path).pods, read_folder(tmp_path).pods
    assert first == again
    assert first.name.startswith("train-")
