"""All faults mixed at random: `make lab-soak`, or `python -m tests.lab.soak --minutes 10`.

It goes on for an hour at least and until the agent was killed 300 times, which takes more than two hours in an
emulated machine: an agent needs about 40 seconds there until all agree again.

A round is some kills of the agent while pods come and go, then one fault chosen by chance; at the end come the faults
that take minutes, each once. After one to four kills, and after each fault, all must agree, and the pods that stay
must not have moved. The first disagreement ends the run, with the seed that repeats its choices (their timing is the
machine's).
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tests.lab import cluster, faults
from tests.lab.cluster import NUMALIGN, PLANS, Lab
from tests.lab.faults import FAULTS
from tests.lab.needs import LabError, PromiseError
from tests.lab.places import RUN
from tests.lab.stage import Churn, Stage
from tests.lab.steps import STATE

EXAMPLES = """
examples:
  python -m tests.lab.soak                           more than two hours: 300 kills, a seed of its own
  python -m tests.lab.soak --minutes 10 --kills 50   shorter
  python -m tests.lab.soak --seed 7                  the same choices again
  python -m tests.lab.soak --keep                    leave the lab running at the end

exit codes: 0 all agreed; 1 something did not (the report says what); 2 wrong arguments; 3 the lab does not start
"""
ROUND = 10
"""Kills of a round."""
Say = Callable[[str], None]


@dataclass
class Report:
    """What a soak did.

    Attributes:
        seed, minutes: what it was asked for, and how long it ran.
        kills: of the agent, those that are part of a fault included.
        faults: name -> how often.
        pods: what churn did -> how often.
        slowest: seconds until all agreed again, of the slowest kill and fault.
        failed: "" when all agreed.
    """

    seed: int
    minutes: float = 0.0
    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    pods: Counter[str] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=lambda: {"kill": 0.0, "fault": 0.0})
    failed: str = ""


def some(chance: random.Random, number: int) -> Iterator[int]:
    """Parts of a number of kills, one to four each: the second and later kills of a part hit an agent that starts."""
    while number > 0:
        part = min(chance.choice((1, 2, 3, 4)), number)
        number -= part
        yield part


def kills(stage: Stage, parts: Iterable[int], say: Say, report: Report | None = None) -> Counter[str]:
    """Kill the agent while pods come and go; what churn did.

    Args:
        stage: the node.
        parts: how many kills follow each other before anything is checked. The first one hits an agent that has just
            recovered, the others one that is still starting.
        say: told after each part.
        report: where the slowest is kept.
    """
    before = stage.agreed()
    with Churn(stage, most=2) as churn:
        for times in parts:
            killed = -1
            for _ in range(times):
                time.sleep(stage.random.uniform(0.0, 3.0))
                killed = stage.kill()
            began = time.monotonic()
            stage.said("recovered", after=killed)
            back = time.monotonic() - began
            after = stage.agreed()
            stage.unmoved(before, after)
            took = time.monotonic() - began
            if report:
                report.slowest["kill"] = max(report.slowest["kill"], took)
            say(f"killed {times} times: back after {back:.1f} s, all agreed after {took:.1f} s")
    stage.lab.wait_gone(*churn.pods())
    return churn.counts


def soak(stage: Stage, report: Report, minutes: float, number: int, say: Say) -> None:
    """Rounds until the time is over and the kills are done; raises at the first disagreement."""
    began = time.monotonic()
    mixed = [fault for fault in FAULTS if fault.mixed]
    rounds = 0
    while True:
        report.minutes = (time.monotonic() - began) / 60
        left = number - report.kills
        if report.minutes >= minutes and left <= 0:
            break
        rounds += 1
        due = min(max(0, left), ROUND)
        if due:
            report.pods += kills(stage, some(stage.random, due), lambda _text: None, report)
        fault = stage.random.choice(mixed)
        outcome = faults.suffer(stage, fault)
        report.faults[fault.name] += 1
        report.kills = stage.kills
        report.slowest["fault"] = max(report.slowest["fault"], outcome.agreed)
        say(
            f"round {rounds}: {due} kills, then {fault.name} ({outcome.made:.1f} s), agreed after "
            f"{outcome.agreed:.1f} s; so far {report.kills} kills, {report.faults.total()} faults, "
            f"{report.pods['created']} pods"
        )
    for fault in FAULTS:
        if not fault.mixed:
            outcome = faults.suffer(stage, fault)
            report.faults[fault.name] += 1
            say(f"once: {fault.name} ({outcome.made:.1f} s), agreed after {outcome.agreed:.1f} s")


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.soak", description=(__doc__ or "").split("\n", maxsplit=1)[0], epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=60.0, help="how long at least (60)")
    parser.add_argument("--kills", type=int, default=300, help="how many kills of the agent at least (300)")
    parser.add_argument("--seed", type=int, help="of what is chosen by chance; printed")
    parser.add_argument("--keep", action="store_true", help="leave the lab running at the end")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10_000)
    report, began = Report(seed), time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {text}", flush=True)

    say(f"seed {seed}, {asked.minutes:g} minutes, {asked.kills} kills")
    lab, stage, broken = None, None, False
    try:
        cluster.built(say)
        lab = Lab.up({NUMALIGN: PLANS[NUMALIGN]}, say)
        stage = Stage(lab, lab.numalign, random.Random(seed))
        stage.fill()
        soak(stage, report, asked.minutes, asked.kills, say)
    except (PromiseError, LabError) as error:
        report.failed = str(error)
        broken = lab is not None or isinstance(error, PromiseError)
        print(f"seed {seed}: {error}", file=sys.stderr)
        if stage:  # the lab goes down, and its node with all that the agent said
            with contextlib.suppress(LabError):  # it may be the node that does not answer
                last = [*stage.words(4000), stage.node.run(f"cat {STATE}/*.json*; true")]
                (RUN / "soak.log").write_text("\n".join(last))
                say(f"what the agent said last, and its state: {RUN / 'soak.log'}")
    finally:
        if lab and not asked.keep:
            lab.down()
    say(f"{report.kills} kills, {report.faults.total()} faults {dict(report.faults)}, pods {dict(report.pods)}")
    say(f"slowest: {report.slowest}; " + ("FAILED" if report.failed else "all agreed"))
    if report.failed:
        return 1 if broken else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
