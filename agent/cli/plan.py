"""`numalign plan`: what would become of the running pods under another policy, or packed again. Changes nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from agent.app.offline.queries import OfflineQueries, open_queries
from agent.cli.where import config_option, root_option, state_dir_option
from agent.errors import SettingsError
from agent.forecast.gains import Gain, gains, sentences
from agent.forecast.whatif import Difference, Forecast, PodForecast, WhatIf, what_if
from agent.model.exclusive import ALLOWED, Selection, parsed
from agent.model.rules import Policy, Scope

REFUSED = 1
"""Exit code when a pod that runs would be refused."""
EXAMPLES = """\b
Examples:
  numalign plan --policy single-numa-node      which pods would be refused?
  numalign plan --exclusive auto               which pods gain own CPUs?
  numalign plan --repack                       what would a repack leave free?
  numalign plan --policy restricted --scope pod -o json |
      jq '.pods[] | select(.change == "refused")'
"""


@click.command("plan", epilog=EXAMPLES)
@click.option(
    "--policy", type=click.Choice([each.value for each in Policy]), help="Another topologyManagerPolicy of the node."
)
@click.option(
    "--scope", type=click.Choice([each.value for each in Scope]), help="Another topologyManagerScope of the node."
)
@click.option(
    "--exclusive",
    metavar="WISH",
    help="Another exclusiveContainers: auto, names, or auto,-NAME.",
)
@click.option("--repack", is_flag=True, help="Place all pods again, in the best of several orders.")
@state_dir_option
@config_option
@root_option
@click.option("--details", "-v", is_flag=True, help="Also what each pod has, and would have, CPU by CPU.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    *, policy: str | None, scope: str | None, exclusive: str | None, repack: bool, state_dir: Path,
    config: Path | None, root: str | None, details: bool, output: str,
) -> None:  # fmt: skip
    """Tell which pods of this node would have been refused, or placed elsewhere, and why.

    The pods of the saved ledger are admitted once more, on a copy, to the empty node under the rules in question; a
    pod's own annotations stay in force. Running pods are never moved: to get there, they would have to be created
    again, in the order that is told.

    Exit codes: 0 every pod that runs would get in; 1 some would be refused; 2 wrong input; 3 a fault of this
    machine, or no ledger.
    """
    if policy is None and scope is None and exclusive is None and not repack:
        why = "name another --policy, --scope or --exclusive, or --repack; nothing else is to be planned"
        raise SettingsError("plan", why)
    wish = None if exclusive is None else parsed(exclusive)
    if exclusive is not None and wish is None:
        raise SettingsError("--exclusive", f'"{exclusive[:60]}" is not one of {ALLOWED}')
    desk = open_queries(state_dir, config, root)
    question = _question(desk, Policy(policy) if policy else None, Scope(scope) if scope else None, wish)
    answer = what_if(question, repack=repack)
    if output == "json":
        click.echo(json.dumps({**as_json(question, answer), "notes": list(desk.notes)}, indent=2))
    else:
        from agent.cli import plan_show  # noqa: PLC0415 - rich is loaded only where a table is shown

        words = sentences(gained(question, answer), str(question.then.rules.exclusive)) if exclusive else ()
        plan_show.show(question, answer, repack=repack, details=details, more=(*words, *desk.notes))
    sys.exit(REFUSED if answer.count(Difference.REFUSED) else 0)


def _question(desk: OfflineQueries, policy: Policy | None, scope: Scope | None, wish: Selection | None) -> WhatIf:
    return WhatIf(
        desk.node, desk.node.with_topology(policy, scope, wish), desk.ledger,
        outside=[
            each.pod for each in desk.outside.values() if each.standing.refusal is not None and not each.gone
        ],
        exempt=desk.exempt,
    )  # fmt: skip


def as_json(question: WhatIf, answer: Forecast) -> dict[str, Any]:
    """The answer for programs (deploy/docs/explain.md)."""
    now, then = question.now.rules.topology, question.then.rules.topology
    return {
        "version": 1,
        "policy": {"now": now.policy.value, "then": then.policy.value},
        "scope": {"now": now.scope.value, "then": then.scope.value},
        "exclusive": {
            "now": str(question.now.rules.exclusive), "then": str(question.then.rules.exclusive),
            "gains": [_gain(each) for each in gained(question, answer)],
        },
        "order": answer.order, "ordersTried": list(answer.tried),
        "pods": [_row(line) for line in answer.lines],
        "counts": {change.value: answer.count(change) for change in Difference},
        "aligned": {"now": answer.aligned[0], "then": answer.aligned[1]},
        "largestAligned": {"now": dict(answer.before), "then": dict(answer.after)},
    }  # fmt: skip


def gained(question: WhatIf, answer: Forecast) -> tuple[Gain, ...]:
    """Return the pods whose containers would gain CPUs of their own."""
    refused = {
        line.uid: line.why for line in answer.lines if line.change in (Difference.REFUSED, Difference.STILL_REFUSED)
    }
    alone = {line.uid for line in answer.lines if line.change is Difference.LEFT_ALONE}
    pods = (pod for pod in question.pods() if pod.uid not in alone)
    return gains(question.now.rules, question.then.rules, pods, refused)


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        "pod": gain.pod, "containers": dict(gain.containers), "requestedMilli": gain.requested,
        "asGuaranteedMilli": gain.guaranteed, "oneCpu": list(gain.singles), "refused": gain.why,
    }  # fmt: skip


def _row(line: PodForecast) -> dict[str, Any]:
    return {
        "pod": line.pod, "uid": line.uid, "change": line.change.value, "now": dict(line.now), "then": dict(line.then),
        "numaNodesNow": str(line.nodes_now), "numaNodesThen": str(line.nodes_then),
        "alignedNow": line.aligned_now, "alignedThen": line.aligned_then, "why": line.why, "note": line.note,
    }  # fmt: skip
