"""The judge of the sweeps is judged: what it must see, what it must forgive, and what it says of both."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.host.checkpoint import Checkpoint
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger, PodRecord
from agent.model.pod import Container, Pod, Qos
from tests import peers
from tests.lab.needs import LabError
from tests.lab.sweeps import (
    EMPTIED,
    INIT,
    LASTING,
    NEWCOMER,
    ONCE,
    PAUSE,
    Seen,
    Verdict,
    judged,
    parsed,
    strayed,
    summary,
)

Line = dict[str, Any]
A, B = (f"{letter * 8}-0000-4000-8000-000000000000" for letter in "ab")


def ledger(mixed: str | None = None, **assigned: str) -> str:
    """A saved ledger of a machine with CPUs 0-7: pods a and b, and what they have for themselves; a's shared part."""
    own = {{"a": A, "b": B}[name]: {"c": CpuSet.parse(cpus)} for name, cpus in assigned.items()}
    shared = CpuSet.parse("0-7") - CpuSet.union(each["c"] for each in own.values())
    pods = {
        uid: PodRecord(Pod(uid, name, "default", (Container("c"),), Qos.GUARANTEED), "best-effort", "container")
        for name, uid in (("a", A), ("b", B))
        if name in assigned or name == "b"
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.json"
        parts = {} if mixed is None else {A: {"c": CpuSet.parse(mixed)}}
        Checkpoint(path).save(Ledger("m", CpuBooks(shared, assigned=own, mixed=parts), pods=pods))
        return base64.b64encode(path.read_bytes()).decode()


def line(sweep: int, *, whole: bool = False, still: bool = True, saved: str = "", **changed: object) -> Line:
    """A line of the sampler: name -> its CPUs, or (CPUs, kind), or None; the name begins with its pod's."""
    sets = {}
    for name, each in changed.items():
        cpus, kind = each if isinstance(each, tuple) else (each, "app")
        sets[name] = each and {"pod": {"a": A, "b": B}[name[0]], "cpus": cpus, "kind": kind}
    more = {"ledger": saved} if saved else {}
    return {
        "sweep": sweep, "at": sweep / 10, "whole": whole, "still": still, "longest": 0.1, "changed": sets, **more
    }  # fmt: skip


def judge(*lines: Line, until: int = 100, emptied: bool = False) -> Verdict:
    """What is said of lines."""
    return judged(parsed("".join(json.dumps(each) + "\n" for each in (*lines, line(until)))), emptied=emptied)


START = line(0, saved=ledger(a="2-3"), a="2-3", b="0-1,4-7")


def test_nobody_on_anothers_cpus_is_nothing_to_say() -> None:
    """One has CPUs of his own, one shares the rest, and the pool follows what is granted."""
    assert judge(START) == Verdict()
    assert judge(START, line(5, saved=ledger(a="2-3", b="4"), b="4")) == Verdict()


def test_an_overlap_of_two_sweeps_in_a_row_counts() -> None:
    """The sentence names both, the CPUs, and for how long."""
    (said,) = judge(START, line(5, b="0-7"), line(7, b="0-1,4-7")).wrong
    assert "container b of default/b with CPUs 0-7 was on CPUs 2-3 of container a of default/a" in said
    assert "at sweep 5 of 101, 2 sweeps long" in said


@pytest.mark.parametrize(("part", "whole"), [("0-1", "0-3"), ("", "0-7")], ids=["fixed", "pool"])
def test_the_shared_part_of_a_mixed_set_is_no_overlap_and_its_own_part_is(part: str, whole: str) -> None:
    """Beside it others run on the shared CPUs; on its own ones nobody may, whatever its set holds beside them."""
    begin = line(0, saved=ledger(mixed=part, a="2-3"), a=whole, b="0-1,4-7")
    assert judge(begin) == Verdict()
    (said,) = judge(begin, line(5, b="0-2,4-7"), line(8, b="0-1,4-7")).wrong
    assert "was on CPUs 2 of container a of default/a" in said


def test_an_overlap_that_lasts_while_others_change_is_one_overlap() -> None:
    """Sweeps are counted for the two, not for what else changes in between."""
    assert len(judge(START, line(5, b="0-7"), line(6, b2="0-1,4-7"), line(7, b="0-1,4-7")).wrong) == 1


def test_a_single_sweep_counts_if_it_was_a_moment_and_the_ledger_stood_still() -> None:
    """One cgroup is read after the other: what was not in force at once, or while a plan began, is seen once."""
    for whole, still, counts in ((True, True, 1), (False, True, 0), (True, False, 0)):
        found = judge(START, line(5, whole=whole, still=still, b="0-7"), line(6, b="0-1,4-7"))
        assert (len(found.wrong), found.apart[ONCE]) == (counts, 1 - counts)


def test_pause_and_runc_init_are_counted_apart() -> None:
    """They do nothing there; a program of its own counts."""
    assert judge(START, line(5, b2=("0-7", PAUSE))) == Verdict(apart=Counter({PAUSE: 1}))
    began = line(5, b2=("0-7", INIT))
    assert judge(START, began, line(9, b2="0-1,4-7")) == Verdict(apart=Counter({INIT: 1}))


def test_a_newcomer_counts_from_when_it_was_put_somewhere() -> None:
    """A container that starts while no agent listens starts everywhere; once in its place it must stay there."""
    new, placed = line(5, b2="0-7"), line(20, b2="0-1,4-7")
    assert judge(START, new, placed) == Verdict(apart=Counter({NEWCOMER: 1}))
    assert len(judge(START, new, placed, line(30, b2="0-7")).wrong) == 1


def test_what_systemd_emptied_is_counted_apart_until_it_has_lasted() -> None:
    """On such a kernel a container has all CPUs until its set is written again; a part of them is numalign's."""
    short, long = (line(5, b="0-7"), line(40, b="0-1,4-7")), (line(5, b="0-7"), line(60, b="0-1,4-7"))
    assert judge(START, *short, emptied=True) == Verdict(apart=Counter({EMPTIED: 1}))
    assert len(judge(START, *long, emptied=True).wrong) == len(judge(START, *short).wrong) == 1
    assert len(judge(START, line(5, b="0-2,4-7"), emptied=True).wrong) == 1


def test_two_that_have_cpus_of_their_own_must_not_share_one() -> None:
    """Whichever of them came later."""
    both = ledger(a="2-3", b="4-5")
    assert judge(START, line(5, saved=both, b="4-5")) == Verdict()
    assert len(judge(START, line(5, saved=both, b="4-5"), line(9, a="2-4")).wrong) == 1


def test_what_is_freed_early_is_seen() -> None:
    """The ledger has given the CPUs back, others come onto them, and the container still runs (S13)."""
    assert len(judge(START, line(5, saved=ledger(), b="0-7")).wrong) == 1
    assert judge(START, line(5, a=None), line(6, saved=ledger(), b="0-7")) == Verdict()


def test_a_pod_that_is_to_share_from_now_on_has_nothing_of_its_own() -> None:
    """Other settings: the ledger has the pod, and no CPUs of its own for it."""
    mine = line(0, saved=ledger(b="2-3"), b="2-3", a="0-1,4-7")
    assert judge(mine, line(5, saved=ledger(), a="0-7"), line(7, b="0-7")) == Verdict()


def test_a_thread_that_is_left_outside_its_cgroup_is_told() -> None:
    """The kernel moves threads with their cgroup, one by one: one that stays behind is told by its number."""
    odd = line(5, a="2-3")
    odd["changed"]["a"]["strays"] = {"77": "0"}
    assert judge(START, odd, line(5 + LASTING - 1, a="2-3")) == Verdict()
    (said,) = judge(START, odd, line(5 + LASTING, a="2-3")).wrong
    assert "thread 77 of container a of default/a might run on CPUs 0, its cgroup on 2-3" in said


def test_a_thread_that_is_left_behind_is_told_however_often_something_else_changes() -> None:
    """Pods come and go meanwhile; a cgroup that changes itself begins anew, and so does a thread that came back."""
    odd = line(5, a="2-3")
    odd["changed"]["a"]["strays"] = {"77": "0"}
    others = [line(5 + number, b="4-5" if number % 2 else "4-6") for number in range(1, LASTING + 1)]
    assert len(judge(START, odd, *others).wrong) == 1
    moved = line(15, a="2")
    moved["changed"]["a"]["strays"] = {"77": "0"}
    assert judge(START, odd, moved, line(5 + LASTING, a="2-3")) == Verdict()
    back = [line(10, a="2-3"), {**odd, "sweep": 12}]
    assert judge(START, odd, *back, line(5 + LASTING, a="2-3")) == Verdict()


def test_a_thread_on_cpus_that_are_another_ones_counts_after_two_sweeps() -> None:
    """What a cgroup must not do, its threads must not do either."""
    both = line(4, saved=ledger(a="2-3", b="4-5"), a="2-3", b="4-5")
    odd = line(5, a="2-3")
    odd["changed"]["a"]["strays"] = {"77": "2-4"}
    assert judge(START, both, odd, line(6, a="2-3")) == Verdict()
    (said,) = judge(START, both, odd, line(7, a="2-3")).wrong
    assert "thread 77 of container a of default/a might run on CPUs 2-4" in said


def test_the_time_on_cpus_that_are_another_ones_is_told() -> None:
    """In seconds, once for each time in a row; a newcomer and a program that runc begins stand apart."""
    wide, back = line(5, b="0-7"), line(7, b="0-1,4-7")
    assert judge(START, wide, line(6, b2="0-7"), back).stood == pytest.approx([0.2])
    assert judge(START, wide, back, line(20, b="0-2"), line(21, b="0-1")).stood == pytest.approx([0.2, 0.1])
    odd = line(5, b="0-1,4-7")
    odd["changed"]["b"]["strays"] = {"77": "2"}
    assert judge(START, odd, back).stood == pytest.approx([0.2])
    assert judge(START, line(5, b2="0-7"), line(6, b2=("0-7", INIT)), line(9, b2="0-1")).stood == []


def test_a_damaged_ledger_changes_nothing_and_none_at_all_is_nobodys() -> None:
    """The checkpoint is broken on purpose in some tests: what was saved before goes on to count."""
    damaged = base64.b64encode(b"{}").decode()
    assert len(judge(START, line(3, saved=damaged), line(5, b="0-7")).wrong) == 1
    assert judge(line(0, a="2-3", b="0-7")) == Verdict()


def test_who_strays_is_seen() -> None:
    """A container that was elsewhere for one sweep is named, and a CPU that went offline is no move."""
    seen = parsed("".join(json.dumps(each) + "\n" for each in (START, line(5, a="3"), line(6, a="2-3"), line(9))))
    pinned = {"a": CpuSet.parse("2-3")}
    assert ["was on 3 at sweep 5 of 10" in each for each in strayed(seen, pinned)] == [True]
    assert not list(strayed(seen, pinned, lost=CpuSet.of(2)))


def test_a_last_line_that_is_not_whole_is_left_out() -> None:
    """The file is read while it is written; an empty one is no answer."""
    assert parsed(json.dumps(START) + "\n" + '{"sweep": 5').count == 1
    with pytest.raises(LabError, match="wrote nothing"):
        parsed("")


def test_what_does_not_count_is_told_by_kind() -> None:
    """For the report, over all tests."""
    assert summary([Counter({PAUSE: 1}), Counter({PAUSE: 2, ONCE: 1})]) == (
        "3 with a pause process, 0 with runc init, 0 of newcomers, 0 emptied by systemd, 1 seen once"
    )


@pytest.mark.go
def test_the_sampler_runs_on_any_machine(tmp_path: Path) -> None:
    """Where there is no container it says so in lines that can be read, until it is told to end."""
    out = tmp_path / "out"
    with subprocess.Popen([peers.build("sweep"), out]) as sampler:
        try:
            while not (out.exists() and out.read_text().endswith("\n")):
                assert sampler.poll() is None
                time.sleep(0.01)
        finally:
            sampler.terminate()
    assert sampler.returncode == 0
    seen = parsed(out.read_text())
    assert seen.count >= 1
    assert seen.spans[0].sets == {}
    assert judged(seen) == Verdict()


NAMES = {
    ("systemd", "containerd"): "cri-containerd-{}.scope", ("systemd", "crio"): "crio-{}.scope",
    ("cgroupfs", "containerd"): "{}", ("cgroupfs", "crio"): "crio-{}",
}  # fmt: skip
"""Of a container's cgroup, by driver and runtime."""
POD = {
    "systemd": f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{A.replace('-', '_')}.slice",
    "cgroupfs": f"kubepods/burstable/pod{A}",
}
BUNDLE = {
    "containerd": ("run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", "cri.container-type"),
    "crio": ("run/containers/storage/overlay-containers/{}/userdata/config.json", "cri-o.ContainerType"),
}
"""Where a runtime writes down what a container is, and what it calls that."""


FILES = {
    2: ("sys/fs/cgroup", "cpuset.cpus.effective", "cgroup.threads"),
    1: ("sys/fs/cgroup/cpuset", "cpuset.effective_cpus", "tasks"),
}
"""Of cgroups, by version: where they are, the CPUs in force, the threads."""


@pytest.mark.go
@pytest.mark.parametrize("version", FILES)
@pytest.mark.parametrize(("driver", "runtime"), NAMES)
def test_the_sampler_knows_the_names_of_each_layout(tmp_path: Path, driver: str, runtime: str, version: int) -> None:
    """A container and the sandbox of its pod are seen; CRI-O's monitor and a cgroup where nothing runs are not."""
    app, pause, empty, monitor = (letter * 64 for letter in "abcd")
    everywhere = f"0-{max(os.sched_getaffinity(0))}"
    name, (bundle, kind), (tree, cpus_file, threads) = NAMES[driver, runtime], BUNDLE[runtime], FILES[version]
    with subprocess.Popen(["sleep", "60"]) as child:
        for each, folder in (
            (app, name.format(app)), (pause, name.format(pause)), (empty, name.format(empty)),
            (monitor, f"crio-conmon-{monitor}" + ".scope" * (driver == "systemd")),
        ):  # fmt: skip
            place = tmp_path / tree / POD[driver] / folder
            place.mkdir(parents=True)
            (place / cpus_file).write_text(f"{everywhere}\n")
            (place / threads).write_text("" if each == empty else f"{child.pid}\n")
            about = tmp_path / bundle.format(each)
            about.parent.mkdir(parents=True)
            word = "sandbox" if each == pause else "container"
            about.write_text(json.dumps({"annotations": {f"io.kubernetes.{kind}": word}}))
        with subprocess.Popen([peers.build("sweep"), tmp_path / "out", tmp_path]) as sampler:
            while not ((tmp_path / "out").exists() and (tmp_path / "out").read_text().endswith("\n")):
                assert sampler.poll() is None
                time.sleep(0.01)
            sampler.terminate()
        child.kill()
    (*_, last) = parsed((tmp_path / "out").read_text()).spans
    cpus = CpuSet.parse(everywhere)
    assert last.sets == {app: Seen(A, cpus), pause: Seen(A, cpus, PAUSE)}
