"""The agent's state folder, read by the commands that answer from it.

They are `numalign state`, `explain`, `plan`, `verify` and `release`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent.app import places, setup
from agent.app.statedir import node_allocatable as kept
from agent.core.machines.identity import as_it_was as held_to
from agent.core.machines.identity import differs
from agent.errors import BadDocumentError, HostError, MalformedError, SettingsError
from agent.host.checkpoint import Checkpoint, Saved
from agent.model.ledger import Ledger
from agent.node.migrate import migrate


def saved_in(store: Checkpoint) -> Saved:
    """Read what the folder's agent saved last.

    Raises:
        HostError: it cannot be read, or there is none.
    """
    saved = store.load()
    if saved is None:
        raise HostError(
            str(store.path), f"is not there: no agent has saved anything in this --state-dir{_instead(store)}"
        )
    return saved


def _instead(store: Checkpoint) -> str:
    """The state folder that `make run` made here last, as a remedy where none was named; else ""."""
    if store.path.parent != places.DEFAULT_STATE:
        return ""
    try:
        made = sorted((each.stat().st_mtime, each.parent) for each in Path("run").glob("*/checkpoint.json"))
    except OSError:
        return ""
    return f"; after `make run` it is --state-dir {made[-1][1]}" if made else ""


def carried(saved: Saved, found: setup.Setup) -> tuple[Ledger, tuple[str, ...]]:
    """A saved ledger on the machine at hand, as the agent would carry it over at its next start, and what to note.

    Raises:
        SettingsError: it is of another machine.
    """
    machine = found.machine
    different = differs(saved.ledger, saved.extra, machine)
    if different is None:
        raise SettingsError(
            "--root", f"the ledger is of machine {saved.ledger.machine}, and {machine.name} is {machine.digest}; "
            "name the machine that it was served on"
        )  # fmt: skip
    if saved.ledger.machine == machine.digest:
        return saved.ledger, ()
    moved = migrate(saved.ledger, found.node)
    notes = (different, *moved.sentences())
    return moved.ledger, tuple(note for note in notes if note)


def as_it_was(saved: Saved | None, found: setup.Setup) -> setup.Setup:
    """Settings and machine, where pods can run on what the agent could place them on when it saved last."""
    machine = held_to(saved.extra, found.machine) if saved else found.machine
    return replace(found, machine=machine, node=found.node.on(machine))


def setup_of(state: Path, config: Path | None, root: str | None) -> setup.Setup:
    """Read settings and machine as the folder's agent has them: with the Node's values that it saved last.

    Args:
        state: the agent's --state-dir; need not exist.
        config: its configuration file; None for that of the agent's own pod if this is one, else for the defaults.
        root: its machine, None for this one.

    Raises:
        SettingsError, MalformedError: the input is wrong.
        HostError: this machine cannot be read.
    """
    known = kept.load(state)
    try:
        its = known if known.known else None
        if config is None and root is None:
            return setup.begin(setup.config_of(config, root), root, state, its)
        return setup.read_setup(config, root, its)
    except BadDocumentError:  # of the configuration file
        raise
    except (HostError, MalformedError) as error:
        if root is None:
            raise
        raise SettingsError("--root", str(error)) from None
