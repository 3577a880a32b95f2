"""What of the lab one run of CI has time for: a core, and one slice of the rest by rotation.

CI has 45 minutes on two cores, and takes the lab only where its builds are kept from an earlier run. The slice
is chosen by the hour, so that runs of a day take all of them, or by NUMALIGN_LAB_SLICE (a number or a name).
`python -m tests.lab ci MINUTES` draws up the list of a run before its first
test: what is on it and does not run is red, and no test leaves itself out for lack of time.
`python -m tests.lab.slices --write` writes the table of minutes (deploy/docs/dev/ci.md).
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lab import cells, faults
from tests.lab.cells import Cell
from tests.lab.needs import LabError
from tests.lab.pairs import PAIRS
from tests.lab.places import ROOT
from tests.lab.referee.chosen import chosen as chosen_sequences
from tests.lab.referee.test_other_machines import PLANS as OTHER_PLANS
from tests.lab.test_dra import SEQUENCES as SEQUENCES_OF_CLAIMS
from tests.lab.test_shapes import PLANS

PAGE = ROOT / "deploy/docs/dev/ci.md"
CHOICE = "NUMALIGN_LAB_SLICE"
HOUR = 3600


@dataclass(frozen=True)
class Part:
    """Tests that are taken together or not at all.

    Attributes:
        tests: files, or ids of tests in them.
        minutes: that they take on two quiet cores, as measured.
    """

    tests: tuple[str, ...]
    minutes: float


@dataclass(frozen=True)
class Slice:
    """Some of the lab's tests.

    Attributes:
        name: for people and for NUMALIGN_LAB_SLICE.
        parts: of it; where there is no room for all, another one is the first each time.
        what: in a few words.
        tiers: of tests.peers.ahead that nothing else in a run needs; built before the list is drawn up.
        building: minutes that these take on a bare machine.
    """

    name: str
    parts: tuple[Part, ...]
    what: str
    tiers: tuple[str, ...] = ()
    building: float = 0

    @property
    def minutes(self) -> float:
        return sum(each.minutes for each in self.parts)

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(test for each in self.parts for test in each.tests)


@dataclass(frozen=True)
class Drawn:
    """The list of one run."""

    tests: tuple[str, ...]
    left_out: tuple[str, ...]
    minutes: float

    def __str__(self) -> str:
        left = f"; LEFT OUT, there is no time for it: {', '.join(self.left_out)}" if self.left_out else ""
        return f"{', '.join(self.tests)}{left}"


FAULTS = "tests/lab/test_faults.py"
ALONE = f"{FAULTS}::test_alone"
FORCED = f"{ALONE}[force-deleted]"
"""What a product that frees CPUs too early fails (`broken.py`): on every list."""
KILLED = f"{FAULTS}::test_the_agent_is_killed_while_pods_churn"
CORE = Slice(
    "core", (
        Part(("tests/lab/test_first.py",), 1),
        Part((f"{FAULTS}::test_every_row_of_the_design_has_faults_and_every_fault_a_row", f"{KILLED}[1]",
              FORCED), 3.5),
        Part(("tests/lab/test_chart.py",), 4),
        Part(tuple(test for each in faults.FAULTS if each.quick and (test := f"{ALONE}[{each.name}]") != FORCED), 5),
        *(Part((f"{KILLED}[{n}]",), 1.5) for n in (2, 3, 4)),
    ),
    "first pods on both nodes, the chart's life, 20 kills of the agent, six faults alone",
)  # fmt: skip
LEAST = 2
"""Parts of the core that are on every list."""


def _parts(test: str, names: Sequence[str], number: int, minutes: float, *, form: str = "{}[{}]") -> tuple[Part, ...]:
    """A test of many cases, or a file of tests, in so many parts, each of what follows each other."""
    step = -(-len(names) // number)
    cuts = [names[start : start + step] for start in range(0, len(names), step)]
    return tuple(
        Part(tuple(form.format(test, name) for name in cut), minutes * len(cut) / len(names)) for cut in cuts
    )


SHAPES = "tests/lab/test_shapes.py"
SEQUENCES = "tests/lab/referee/test_sequences.py::test_both_nodes_do_what_the_sequence_expects"
OTHERS = "tests/lab/referee/test_other_machines.py::test_a_kubelet_does_what_the_sequences_for_its_machine_expect"
RULES = "tests/lab/test_rules.py"
EXCLUSIVE = "tests/lab/test_exclusive.py"
CLAIMS = "tests/lab/test_dra.py::test_s22_cpus_and_memory_follow_the_claim"
PAIRS_TEST = "tests/lab/test_pairs.py::test_two_faults_at_once"
FIRST_ACT = "tests/lab/referee/test_first_act.py::test_the"
CELL = Slice(
    "cell", (Part((), cells.MINUTES),),
    "one kind of node of [the support page](../support.md): another kubelet, runtime, cgroups or Linux", (),
    2 * cells.KUBELET_MINUTES,
)  # fmt: skip
"""A lab of its own, in place of the one that all others need: without the core, if there is time for a cell."""
GROUPS = (
    Slice("sequences", _parts(SEQUENCES, [each.name for each in chosen_sequences()], 3, 17),
          "the core of the referee's sequences"),
    Slice("other-machines", tuple(Part((f"{OTHERS}[{name}]",), 3) for name in OTHER_PLANS),
          "the referee's sequences for machines of other shapes, on guests whose kubelet pins by itself"),
    Slice("machines", (
        Part(("tests/lab/test_examples.py",), 2), Part(("tests/lab/test_order.py",), 3),
        Part(("tests/lab/test_switches.py",), 3), *(Part(tuple(f"{SHAPES}::{test}[{name}]" for test in (
            "test_an_exclusive_and_a_sharing_pod", "test_a_restart_of_kubelet_and_runtime_moves_nothing",
            "test_what_fits_nowhere_is_refused",
        )), 3) for name in PLANS),
        *_parts(CLAIMS, [*SEQUENCES_OF_CLAIMS], 2, 14),
        Part(("tests/lab/test_dra.py::test_s22_the_claim_of_a_refused_pod_goes_with_it",
              "tests/lab/test_dra.py::test_podresources_names_the_claim_before_the_sandbox_is_made"), 2),
    ), "the examples, grants without NRI, six machines of other shape, one with PCIe switches, pods with DRA claims"),
    Slice("rules", (
        *_parts(RULES, (
            "test_s2_what_the_node_lives_on_starts_on_a_full_node",
            "test_s11_the_kubelet_tries_a_waiting_pod_again_and_seldom",
            "test_s21_the_agent_runs_on_the_pool_and_within_its_memory",
            "test_s3_a_nodes_switch_stops_every_write", "test_s7_memory_that_is_not_there_is_not_promised",
            "test_s10_another_plugin_is_told_by_its_pod", "test_s17_release_gives_memory_nodes_back",
            "test_s22_a_device_is_opened_by_its_container_and_by_no_other",
        ), 4, 18, form="{}::{}"),
        Part(("tests/lab/test_refused_sandboxes.py",), 5),
    ), "safety rules that only a real node can prove"),
    Slice("newest", (
        Part(("tests/newest/test_newest.py",), 8), Part(("tests/bare/test_bare.py",), 7),
        Part(("tests/cluster/test_forecast.py::test_a_thousand_pods[LeastAllocated]",), 5),
        Part(("tests/lab/test_fleet.py",), 7),
    ), "tests that need no kubelet on Debian's newest Python, and which branches they take; README's two commands on "
       "a machine with nothing but Python, make and git; 1,000 pods placed by a real scheduler on 40 paper nodes, "
       "and a dozen on the lab's own: what was forecast is what happens"),
    Slice("release", (
        Part(tuple(f"tests/release/test_{each}.py" for each in ("release", "refused", "verify_page")), 6),
        Part(("tests/lab/test_first_install.py",), 4), Part(("tests/lab/test_tutorial.py",), 4),
    ), "a release into a local registry, verified, refused after one byte changed; first installs: two fail, one "
       "comes from a registry; the tutorial as it is typed; cosign is built for it", ("releasing",), 5),
    Slice("kernel", (
        Part(("tests/lab/referee/test_kernel.py",), 8),
        Part((f"{FIRST_ACT}_window_without_nri_is_measured",), 2),
    ), "what the kernel has is what the books say, and how long a container without NRI waits for its set"),
    Slice("exclusive", (
        *_parts(EXCLUSIVE, (
            "test_nobody_is_on_granted_cpus_while_pods_churn",
            "test_s16_the_sidecar_keeps_its_quota_and_the_app_has_none",
            "test_who_starts_while_the_agent_is_away_is_named_and_put_right",
        ), 3, 13, form="{}::{}"),
        Part((f"{EXCLUSIVE}::test_with_required_plugins_nobody_starts_while_the_agent_is_away",), 6),
        Part(("tests/lab/test_mixed.py",), 4), Part(("tests/lab/test_memory_policy.py",), 5),
    ), "containers of Burstable pods with CPUs of their own: churn, kills; own and shared ones in one; memory "
       "policies by a runc that has them and by one that has not"),
    Slice("arm", (Part(("tests/arm/test_guest.py",), 3),),
          "a guest of 64-bit ARM: discovery, cgroups and NRI there", ("arm_guest",), 8),
    Slice("pairs", (
        *_parts(PAIRS_TEST, [each.name for each in PAIRS], 7, 28),
        *_parts(ALONE, [each.name for each in faults.FAULTS if not each.quick], 3, 13),
    ), "fourteen pairs of faults, and the thirteen faults alone that the core has not"),
)  # fmt: skip

BY_HAND = Slice(
    "by hand",
    (
        Part((f"{FIRST_ACT}_first_act_of_a_container_is_where_it_was_granted",), 9),
        Part((f"{EXCLUSIVE}::test_an_app_is_pinned_beside_each_sidecar",), 11),
    ),
    "100 of 100 containers are pinned at their first instruction; an app is pinned beside each of ten sidecars",
)
"""What is too long for any run of CI: `make lab-all` takes it."""


def _together(*names: str) -> Slice:
    """Groups that have their turn in the same run."""
    found = [each for each in GROUPS if each.name in names]
    parts, tiers = (part for each in found for part in each.parts), (tier for each in found for tier in each.tiers)
    what, building = "; ".join(each.what for each in found), sum(each.building for each in found)
    return Slice("+".join(names), tuple(parts), what, tuple(tiers), building)


SLICES = (
    _together("sequences", "other-machines", "newest"), _together("machines", "release"),
    _together("rules", "kernel"), _together("exclusive"), _together("arm", "pairs"), CELL,
)  # fmt: skip
"""What runs that follow each other take beside the core, as far as there is time for it."""
SLOWER, AFTER = 1.2, 2.0
"""How much longer the tests may take than they did when they were measured; minutes for the report and the end."""
TESTS, START = 3.5, 0.75
"""Minutes of `make test` on two quiet cores, and of the agent's first start in a guest, its installation included."""
CHECK = 12
"""Minutes of `make check` after `make test`, without what it builds."""
BARE = (
    ("Debian packages", 2), ("`.venv`", 1), ("`make test`", TESTS),
    ("peers that `make check` builds: Kubernetes, Helm tools, NRI", 11), ("image", 3), ("`make check`", CHECK),
)  # fmt: skip
"""What a run on a bare machine takes, in minutes."""
KEPT = (
    ("`make test`", TESTS), ("image of this commit", 2), ("`make check`", CHECK), ("the guests' disks", 2),
    ("boot to Ready", 4),
)  # fmt: skip
"""What comes before the lab's tests on a machine that keeps what was built, in minutes."""
LAB_ENDS, LONGEST = 43, 45
"""Minutes after the start of .ci/run when the lab is told to end, and when it is killed."""


def counter(now: float) -> int:
    """Of the rotation, from seconds since the epoch: hours, and one less each day.

    Were one added each day, who runs every hour would miss a slice each night. None added or taken away, who runs
    once a day would take the same one for ever.
    """
    hour = int(now // HOUR)
    return hour - hour // 24


def chosen(wish: str, now: float) -> Slice:
    """The slice of this run.

    Args:
        wish: of NUMALIGN_LAB_SLICE, "" for the rotation; a slice, its number, or one group.
        now: seconds since the epoch.

    Raises:
        SystemExit: there is no such slice; the text names those that are there.
    """
    if not wish:
        return SLICES[counter(now) % len(SLICES)]
    if wish.isdecimal() and int(wish) < len(SLICES):
        return SLICES[int(wish)]
    known = {each.name: each for each in (*GROUPS, *SLICES)}
    if wish in known:
        return known[wish]
    raise SystemExit(f"{CHOICE}={wish}: there are {', '.join(known)}, and 0 to {len(SLICES) - 1}")


def pace(tests: float, start: float = 0.0) -> float:
    """How many times slower this machine is than the measured one; 1 at least.

    Args:
        tests: seconds of `make test` here, 0 where nobody measured.
        start: seconds of the agent's first start here.

    The square of what is measured: kills and faults put an emulated machine to work as a whole, and the host has as
    many processors as two of it. Where `make test` took 1.5 times as long, rounds of kills took 2.4 times.
    """
    return max(1.0, tests / 60 / TESTS, start / 60 / START) ** 2


def drawn(slice_: Slice, minutes: float, turn: int, slower: float = 1.0) -> Drawn:
    """The list of a run: the core's first parts, and what there is time for of its others and of a slice.

    Args:
        slice_: whose turn it is.
        minutes: for tests and what follows them.
        turn: seed of the choice of the part that comes first.
        slower: how many times slower this machine is than the measured one. A slow one gets a shorter list.

    Raises:
        LabError: there is no time for the least of the core. Then nothing is run, and nobody may call that a success.
    """
    room = (minutes - AFTER) / SLOWER / slower
    taken, left_out = [*CORE.parts[:LEAST]], list[Part]()
    needed = sum(part.minutes for part in taken)
    if needed > room:
        raise LabError(f"the core takes {needed:.0f} minutes, and there are {room:.0f}: nothing was tested")
    first = random.Random(turn).randrange(len(slice_.parts))  # no beat with the hours that runs begin at
    turned = (*slice_.parts[first:], *slice_.parts[:first])
    for part in (turned[0], *CORE.parts[LEAST:], *turned[1:]):
        fits = sum(each.minutes for each in (*taken, part)) <= room
        if part.tests:
            (taken if fits else left_out).append(part)
    order = [part for part in (*CORE.parts, *turned) if part in taken]  # the core finds the lab as it was started
    tests, left = (tuple(test for part in parts for test in part.tests) for parts in (order, left_out))
    return Drawn(tests, left, sum(each.minutes for each in taken))


def cell(wish: str, minutes: float, turn: int, slower: float = 1.0) -> Cell | None:
    """The cell of a run of the slice CELL; None where there is no time for any.

    Args:
        wish: of NUMALIGN_LAB_CELL, "" for the rotation.
        minutes: for all of it.
        turn: seed of the choice of the cell.
        slower: how many times slower this machine is than the measured one.

    Raises:
        SystemExit: there is no such cell.
    """
    if not wish:
        number = random.Random(turn).randrange(HOUR)
        return cells.of_turn(cells.read(), number, minutes / SLOWER / slower - AFTER)
    if wish not in cells.BY_NAME:
        raise SystemExit(f"there is no cell {wish}; there are {', '.join(cells.BY_NAME)}")
    return cells.BY_NAME[wish]


def least(slice_: Slice) -> float:
    """Minutes of the core's first parts and any one part of a slice: what every run with a lab must have room for."""
    core = 0.0 if slice_ is CELL else sum(each.minutes for each in CORE.parts[:LEAST])
    return (core + max(each.minutes for each in slice_.parts)) * SLOWER + AFTER


def groups(slice_: Slice) -> tuple[Slice, ...]:
    """Those that a slice is made of."""
    return tuple(each for each in GROUPS if {*each.tests} <= {*slice_.tests})


def of_this_run() -> tuple[Slice, str]:
    """By NUMALIGN_LAB_SLICE, or by the hour; and its name and which of both chose it, for people."""
    wish, now = os.environ.get(CHOICE, ""), time.time()
    found = chosen(wish, now)
    by = f"{CHOICE}={wish}" if wish else f"the rotation, whose counter is {counter(now)}"
    return found, f"{found.name}, by {by}"


def page() -> str:
    """The table of minutes."""
    slices = [
        f"| {each.name}: {each.what} | {each.building:.0f} | {each.minutes:.0f} | {len(each.parts)} "
        f"| {_total(KEPT) + least(each):.0f} |"
        for each in SLICES
    ]
    core = sum(each.minutes for each in CORE.parts[:LEAST])
    building = (
        f"control plane and kubelet take {cells.KUBELET_MINUTES:.0f} minutes each, CRI-O {cells.CRIO_MINUTES:.0f}"
    )
    return f"""# What CI runs, and how long it takes

`.ci/run` installs what it needs, runs `make test`, and then `make check`, which does not repeat the tests of
`make test`. On a bare machine that is all: the last lines say that the lab is left out. The last line of every run is
the sum of its tests.

| step on a bare machine, with two cores | minutes |
|---|---:|
{_rows(BARE)}

What is built is kept in `~/.cache/numalign`. On a machine that keeps what the lab is made of, from a `make lab`
there, a part of the lab follows. All of it ends after {LONGEST} minutes.

| step where everything is kept | minutes |
|---|---:|
{_rows(KEPT)}
| what is on every list of the lab: first pods on both nodes, five kills of the agent, a deletion by force | {
        core:.1f} |
| the whole core: {CORE.what} | {CORE.minutes:.0f} |

| slice | building for it, once | its minutes | parts | a run with its longest part |
|---|---:|---:|---:|---:|
{chr(10).join(slices)}

The slice changes by the hour, and the one before midnight UTC has the hour after it, too: any seven runs that
follow each other hourly take all six, and so do any six at the same hour of days that follow each other. Runs every
2, 3, 4, 6, 8 or 12 hours take all in six days at most, at the same hour of every other day three for ever. The part
that comes first changes, too. `{CHOICE}=machines+release .ci/run` chooses a slice, `{CHOICE}=machines` one of its
groups. What only that slice needs is built first. Once the lab stands, the list of its tests is drawn up from the
minutes that are left and those above: the first parts of the core; then one part of the slice, the rest of the
core, and the rest of the slice, each if there is time. The core runs first. The log and the report say which slice
it is, what chose it, and what is left out. Where there is no time for the first parts of the core, nothing runs,
which is red. On a machine where `make test` took longer than above, or the agent's first start longer than
{60 * START:.0f} seconds, the list is shorter by the square of that. What is on it is run once: a test that fails,
is skipped or does not come to its end turns the run red, and so does a lab that does not come up at a second try of
its boot. A red run names the commit at which the test, and the group, passed last on that machine, or else in
`make lab-all`.

The slice `cell` starts its own lab in place of the usual one, so it runs without the core. Which cell of
the support page has its turn is drawn by the hour. A cell takes turns once it has passed. Where there is no time to
build its programs
({building}),
the next cell that there is time for runs in its place, and where there is none, the core alone.
A cell's tests are all on its list; where `make test` took long, a cell needs more of the time that is left.
With `{CHOICE}=cell`, `NUMALIGN_LAB_CELL=1.36-v2-systemd-6.12` chooses the cell.

What is too long for any of these runs is run by hand, by `make lab-all`: {BY_HAND.what};
soaks, products that are broken on purpose, and every cell.

This page is made by `python -m tests.lab.slices --write`.
"""


def _rows(steps: Sequence[tuple[str, float]]) -> str:
    """Of a table, with the sum."""
    rows = (*steps, ("together", _total(steps)))
    return "\n".join(f"| {what} | {minutes:g} |" for what, minutes in rows)


def _total(steps: Sequence[tuple[str, float]]) -> float:
    return sum(minutes for _, minutes in steps)


def main(arguments: list[str]) -> int:
    """Write the page."""
    if arguments == ["--write"]:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page())
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
