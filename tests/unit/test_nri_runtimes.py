"""What is known of a runtime by the version that it tells."""

from __future__ import annotations

import pytest

from agent.host.nri.runtimes import CONTAINERD, hangs_at_registration, keeps_refused_sandboxes, reads_policies


@pytest.mark.parametrize(
    ("version", "keeps"),
    [
        ("v2.0.0", True), ("v2.0.7", True), ("v2.1.7", True), ("v2.1.7-gke.3", True), ("v2.2.0-rc.1", True),
        ("v2.2.5", True), ("2.2.5~ds1", True), ("v2.2", True), ("v2.2.6", False), ("v2.3.2+unknown", True),
        ("v2.3.3", False), ("v2.3.7", False), ("v2.4.2", False), ("v3.0.0", False), ("v1.7.29", False),
        ("1.6.20~ds1", False), ("", False), ("dev", False), ("v2", False), ("v2.2.99999", False), ("v22.2.1", False),
    ],
)  # fmt: skip
def test_refused_sandboxes_stay_behind_in_these_versions(version: str, *, keeps: bool) -> None:
    """containerd#13355: 2.0 and 2.1 whole, 2.2 before 2.2.6, 2.3 before 2.3.3; with a distribution's additions."""
    assert keeps_refused_sandboxes(CONTAINERD, version) is keeps
    assert not keeps_refused_sandboxes("cri-o", version)


@pytest.mark.parametrize(
    ("version", "hangs"),
    [("v1.7.13", True), ("v1.7.15", True), ("v1.7.16", False), ("v1.6.40", False), ("2.0.0", False)],
)
def test_these_versions_can_hang_when_a_plugin_registers(version: str, *, hangs: bool) -> None:
    """containerd#10085: 1.7 before 1.7.16."""
    assert hangs_at_registration(CONTAINERD, version) is hangs
    assert not hangs_at_registration("cri-o", version)


@pytest.mark.parametrize(
    ("version", "reads"),
    [("v0.12.5", True), ("0.13.0", True), ("v1.0.0", True), ("v0.12.3", False), ("", False), ("unknown", False)],
)
def test_a_failure_policy_is_read_from_this_version_of_nri_on(version: str, *, reads: bool) -> None:
    """0.12.5; a runtime that tells none counts as one that reads none."""
    assert reads_policies(version) is reads
