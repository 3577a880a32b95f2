"""What the annotation numalign.io/mixed and the setting mixedSharedCPUs say, and where they cannot be followed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agent.app import setup as setups
from agent.core.request import mixed
from agent.errors import MalformedError, SettingsError
from agent.model.idset import CpuSet
from agent.model.ledger import CpuBooks, Ledger
from agent.model.ledgerjson import MIXED, ledger_from_json, ledger_to_json
from agent.model.notes import bounded
from agent.model.podspec import pod_from
from agent.model.rules import CpuRules, MixedCpus, Rules
from agent.settings import parse
from agent.settings.conflicts import KEEPS_AFFINITIES, check_kernel
from tests.flow.exclusive_world import burstable, guaranteed
from tests.world.manifests import container, manifest

RULES = Rules(cpu=CpuRules(static=True))


@pytest.mark.parametrize("release", ["6.1.0-32-amd64", "5.14.0-427.el9.x86_64", "4.18.0", "", "six", "6"])
def test_the_pool_is_refused_on_older_kernels(release: str) -> None:
    """Below 6.2, and where nobody knows the release: one sentence that says what to set; other values are fine."""
    settings, _ = parse({"mixedSharedCPUs": "pool"})
    with pytest.raises(SettingsError, match=r"pool needs Linux 6\.2 or newer.*set mixedSharedCPUs to reserved"):
        check_kernel(settings, release)
    for value in ("reserved", "none"):
        check_kernel(parse({"mixedSharedCPUs": value})[0], release)


@pytest.mark.parametrize("release", ["6.2.0", "6.12.41+deb13-amd64", "7.0-rc1", "10.0.1"])
def test_the_pool_is_allowed_on_newer_kernels(release: str) -> None:
    """From 6.2 on a thread's own affinity outlives a write of its cpuset."""
    check_kernel(parse({"mixedSharedCPUs": "pool"})[0], release)


def test_this_machines_kernel_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a start and with a changed file: the settings of before stay in force, and that is said."""
    config = tmp_path / "config.yaml"
    config.write_text("mixedSharedCPUs: reserved\n")
    before = setups.read_setup(config, None)
    config.write_text("mixedSharedCPUs: pool\n")
    real = os.uname()

    def release(text: str) -> None:
        fields = (real.sysname, real.nodename, text, real.version, real.machine)
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(fields))

    release("6.2.0")
    assert setups.read_setup(config, None).node.rules.mixed is MixedCpus.POOL
    release("6.1.99")
    with pytest.raises(SettingsError, match=r"this is 6\.1\.99"):
        setups.read_setup(config, None)
    told: list[str] = []

    class Told:
        def problem(self, what: str, text: str) -> None:
            told.append(f"{what}: {text}")

    after = setups.again(config, None, before, Told())
    assert after.node.rules.mixed is MixedCpus.RESERVED
    assert told[0].startswith("settings: the old settings stay: ")
    assert KEEPS_AFFINITIES == (6, 2)


def test_nothing_is_said_where_nothing_is_asked() -> None:
    """Without the annotation there is neither a problem nor a word, and nobody takes part."""
    pod = pod_from(guaranteed("g"))
    assert mixed.problem(pod, RULES) == mixed.note(pod, RULES, {}, {"app"}) == ""
    assert not mixed.takes_part(pod, pod.containers[0], RULES)


def test_a_pod_that_is_managed_as_a_whole_is_not_mixed() -> None:
    """Pod-level resources are divided by the kubelet's rules, which know of no mixed set."""
    body = manifest("p", container("app", cpu="2"), mixed="app")
    body["spec"]["resources"] = {"limits": {"cpu": "4", "memory": "1Gi"}}
    pod = pod_from(body)
    assert "pod-level resources" in mixed.problem(pod, RULES)
    assert not mixed.takes_part(pod, pod.containers[0], RULES)


def test_without_the_cpu_manager_nobody_is_mixed() -> None:
    """cpuManagerPolicy: none is the reason that is told."""
    pod = pod_from(burstable("b", exclusive="auto", mixed="app"))
    assert "cpuManagerPolicy: none" in mixed.problem(pod, replace(RULES, cpu=CpuRules(static=False)))


def test_reserved_cpus_that_somebody_holds_are_not_shared() -> None:
    """Held since before they were reserved: what is left is shared, and nothing where nothing is left."""
    books = CpuBooks(shared=CpuSet.parse("0-7"))
    reserved = CpuSet.parse("0-1")
    assert mixed.part(books, RULES, reserved, CpuSet.of(1)) == CpuSet.of(0)
    assert mixed.part(books, RULES, reserved, reserved) is None
    pool = replace(RULES, mixed=MixedCpus.POOL)
    assert mixed.part(books, pool, reserved, reserved) == CpuSet()
    assert mixed.part(replace(books, shared=CpuSet()), pool, reserved, reserved) is None


def test_a_saved_part_that_is_none_is_refused() -> None:
    """A damaged file names its path; both kinds come back as they were."""
    ledger = Ledger("m", CpuBooks(CpuSet.of(0), mixed={"u": {"a": CpuSet.of(0), "b": CpuSet()}}))
    body = ledger_to_json(ledger)
    assert body["others"] == {MIXED: {"u": {"a": ["0"], "b": ["pool"]}}}
    assert ledger_from_json(body) == ledger
    for wrong in ([], ["0", "1"], ["x"], [1]):
        with pytest.raises(MalformedError, match=r"mixed\.u\.a"):
            ledger_from_json(body | {"others": {MIXED: {"u": {"a": wrong}}}})


def test_a_list_that_is_too_long_is_told_so_and_asks_for_nothing() -> None:
    """Only its beginning is kept, which may name other containers: nobody is mixed, whole or cut."""
    long = pod_from(burstable("b", exclusive="auto", mixed=f"app,{','.join(['one'] * 200)}"))
    for found in (long, replace(long, annotations=bounded(long.annotations))):
        assert mixed.problem(found, RULES) == "goes on beyond 500 characters"
        assert mixed.names_of(found) == frozenset()
