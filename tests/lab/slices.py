"""The lab's tests by slices: what a run of CI takes, and what `python -m tests.lab all` takes by hand.

CI takes the lab only where its builds are kept from an earlier run: the core, and one slice drawn by the hour.
NUMALIGN_LAB_SLICE names a slice, or several by the word before their number.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.lab import faults
from tests.lab.pairs import PAIRS
from tests.lab.referee.chosen import chosen
from tests.lab.referee.test_other_machines import PLANS as OTHER_PLANS
from tests.lab.test_dra import SEQUENCES as SEQUENCES_OF_CLAIMS
from tests.lab.test_shapes import PLANS

CHOICE = "NUMALIGN_LAB_SLICE"
HOUR = 3600


@dataclass(frozen=True)
class Slice:
    """Some of the lab's tests.

    Attributes:
        minutes: that they take on two quiet cores, as measured.
        tests: files, or ids of tests in them.
    """

    minutes: float
    tests: tuple[str, ...]


FAULTS = "tests/lab/test_faults.py"
ALONE = f"{FAULTS}::test_alone"
FORCED = f"{ALONE}[force-deleted]"
"""What a product that frees CPUs too early fails: in every run."""
KILLED = f"{FAULTS}::test_the_agent_is_killed_while_pods_churn"
EXCLUSIVE = "tests/lab/test_exclusive.py::test_"
FIRST_ACT = "tests/lab/referee/test_first_act.py::test_the_"
DRA = "tests/lab/test_dra.py::test_"
CORE = Slice(4.5, (
    "tests/lab/test_first.py", f"{FAULTS}::test_every_row_of_the_design_has_faults_and_every_fault_a_row",
    f"{KILLED}[1]", FORCED,
))  # fmt: skip
"""First pods on both nodes, five kills of the agent, a deletion by force."""


def _cut(name: str, test: str, cases: Sequence[str], number: int, minutes: float) -> Iterator[tuple[str, Slice]]:
    """So many slices of one test's cases, or of one file's tests, each of what follows each other."""
    step = -(-len(cases) // number)
    for place, start in enumerate(range(0, len(cases), step), start=1):
        tests = tuple(test.format(case) for case in cases[start : start + step])
        yield f"{name}-{place}", Slice(minutes * len(tests) / len(cases), tests)


SLICES = dict((
    ("chart", Slice(4, ("tests/lab/test_chart.py",))),
    ("kills", Slice(4.5, tuple(f"{KILLED}[{number}]" for number in (2, 3, 4)))),
    *_cut("faults", f"{ALONE}[{{}}]", [each.name for each in faults.FAULTS if each.name != "force-deleted"], 4, 18),
    *_cut("pairs", "tests/lab/test_pairs.py::test_two_faults_at_once[{}]", [each.name for each in PAIRS], 5, 28),
    *_cut("sequences", "tests/lab/referee/test_sequences.py::test_both_nodes_do_what_the_sequence_expects[{}]",
          [each.name for each in chosen()], 3, 17),
    *_cut("other-machines", "tests/lab/referee/test_other_machines.py::"
          "test_a_kubelet_does_what_the_sequences_for_its_machine_expect[{}]", [*OTHER_PLANS], 2, 12),
    ("examples", Slice(5, ("tests/lab/test_examples.py", "tests/lab/test_order.py"))),
    ("switches", Slice(3, ("tests/lab/test_switches.py",))),
    *_cut("shapes", "tests/lab/test_shapes.py::test_{}", [f"{test}[{name}]" for name in PLANS for test in (
        "an_exclusive_and_a_sharing_pod", "a_restart_of_kubelet_and_runtime_moves_nothing",
        "what_fits_nowhere_is_refused",
    )], 3, 18),
    *_cut("claims", f"{DRA}s22_cpus_and_memory_follow_the_claim[{{}}]", [*SEQUENCES_OF_CLAIMS], 2, 14),
    ("claims-3", Slice(2, (f"{DRA}s22_the_claim_of_a_refused_pod_goes_with_it",
                           f"{DRA}podresources_names_the_claim_before_the_sandbox_is_made"))),
    *_cut("rules", "tests/lab/test_rules.py::test_{}", (
        "s2_what_the_node_lives_on_starts_on_a_full_node", "s11_the_kubelet_tries_a_waiting_pod_again_and_seldom",
        "s21_the_agent_runs_on_the_pool_and_within_its_memory", "s3_a_nodes_switch_stops_every_write",
        "s7_memory_that_is_not_there_is_not_promised", "s10_another_plugin_is_told_by_its_pod",
        "s17_release_gives_memory_nodes_back", "s22_a_device_is_opened_by_its_container_and_by_no_other",
    ), 4, 18),
    ("rules-5", Slice(5, ("tests/lab/test_refused_sandboxes.py",))),
    ("kernel", Slice(8, ("tests/lab/referee/test_kernel.py",))),
    ("first-act", Slice(2, (f"{FIRST_ACT}window_without_nri_is_measured",))),
    *_cut("exclusive", f"{EXCLUSIVE}{{}}", (
        "nobody_is_on_granted_cpus_while_pods_churn", "s16_the_sidecar_keeps_its_quota_and_the_app_has_none",
        "who_starts_while_the_agent_is_away_is_named_and_put_right",
    ), 3, 13),
    ("exclusive-4", Slice(6, (f"{EXCLUSIVE}with_required_plugins_nobody_starts_while_the_agent_is_away",))),
    ("mixed", Slice(4, ("tests/lab/test_mixed.py",))),
    ("memory-policy", Slice(5, ("tests/lab/test_memory_policy.py",))),
    ("newest", Slice(8, ("tests/newest/test_newest.py",))),
    ("bare", Slice(7, ("tests/bare/test_bare.py",))),
    ("fleet", Slice(7, ("tests/lab/test_fleet.py",))),
    ("forecast", Slice(5, ("tests/cluster/test_forecast.py::test_a_thousand_pods[LeastAllocated]",))),
    ("release", Slice(6, tuple(f"tests/release/test_{each}.py" for each in ("release", "refused", "verify_page")))),
    ("installs", Slice(8, ("tests/lab/test_first_install.py", "tests/lab/test_tutorial.py"))),
    ("arm", Slice(3, ("tests/arm/test_guest.py",))),
))  # fmt: skip
BY_HAND = (
    f"{FIRST_ACT}first_act_of_a_container_is_where_it_was_granted",
    f"{EXCLUSIVE}an_app_is_pinned_beside_each_sidecar", "tests/lab/test_kubelet.py",
    "tests/lab/test_soak.py", "tests/lab/test_gatekeeper.py",
)  # fmt: skip
"""What no run of CI takes: 100 of 100 containers are pinned at their first instruction, an app beside each of ten
sidecars, when a real kubelet removes an ended pod's cgroup, 300 kills with faults by chance, and 100 pods behind the
gate, which take half an hour."""
FILES = tuple(dict.fromkeys(
    test.partition("::")[0] for tests in (CORE.tests, *(each.tests for each in SLICES.values()), BY_HAND)
    for test in tests
))  # fmt: skip
"""All of them, one after the other, by hand."""
BEFORE, ENDS, LONGEST = 23.5, 43, 45
"""Minutes of .ci/run before the lab's tests where everything is kept; when the lab is told to end, and is killed."""


def of_this_run(wish: str, now: float) -> tuple[str, tuple[str, ...]]:
    """The names and the tests of a run's slices.

    Args:
        wish: of NUMALIGN_LAB_SLICE, "" for the draw.
        now: seconds since the epoch.

    Raises:
        SystemExit: there is no such slice; the text names those that are there.
    """
    names = [each for each in SLICES if wish in (each, each.rpartition("-")[0])]
    if not wish:
        names = [random.Random(int(now // HOUR)).choice([*SLICES])]  # no beat with the hours that runs begin at
    if not names:
        raise SystemExit(f"{CHOICE}={wish}: there are {', '.join(SLICES)}")
    return ", ".join(names), tuple(test for each in names for test in SLICES[each].tests)
