"""The state that counts: one that was checked and saved. A failure drops the new one; nothing has to be undone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agent.core.accounting import invariants
from agent.core.cgroups.cuts import NONE, SAVED, Cuts
from agent.core.cgroups.cuts import as_saved as cuts_as_saved
from agent.core.machines.identity import MACHINE, as_saved
from agent.engine.ports import Reporter, Steps, Store
from agent.errors import CheckpointUnwritableError, InvariantError
from agent.model.ledger import Ledger
from agent.node.recover import ANSWERS, LISTED, NAMES
from agent.node.state import State
from agent.node.transitions import unsaved


class Keeper:
    """Keeps it. Writers hold the engine's lock; `state` is read without it.

    Args:
        state: to begin with.
        store: where the ledger is saved.
        reporter: told once why nothing can be saved.
        steps: told before each save.
        names: container id -> (pod uid, container name), as far as worth saving with a ledger.
        cut: what applications' own cgroups had before they were cut; saved with it, too.
    """

    def __init__(
        self, state: State, store: Store, reporter: Reporter, steps: Steps,
        names: Callable[[Ledger], dict[str, tuple[str, str]]], cut: Callable[[], Cuts] = lambda: NONE,
    ) -> None:  # fmt: skip
        self._state = state
        self._store = store
        self._reporter = reporter
        self._steps = steps
        self._names = names
        self._cut = cut

    @property
    def state(self) -> State:
        """The state that counts."""
        return self._state

    def note(self, state: State) -> None:
        """A state that need not be saved: it has the grants of the one that counts, and counts at once."""
        if state.ledger is not self._state.ledger:
            raise InvariantError("grants would count that were not saved")
        self._state = state

    def commit(
        self, new: State, otherwise: Callable[[State, State], State] = unsaved, *, always: bool = False
    ) -> None:
        """Check a state and save it; from then on it counts.

        Args:
            new: the state.
            otherwise: of the state before and the new one, what counts where the new one cannot be saved.
            always: save it also where the store has its grants.

        Raises:
            InvariantError: a rule of the books does not hold; the state before counts.
        """
        before, saved = self._state, new.stands
        if not saved:
            adopted = (uid for uid, record in new.ledger.pods.items() if record.adopted)
            invariants.check(new.ledger, new.node, earlier=(*before.ledger.pods, *adopted))
        if always or not saved:
            new = self._saved(new)
        self._state = new if new.stands else otherwise(before, new)

    def save(self) -> bool:
        """Save what counts; whether that went well."""
        self._state = self._saved(self._state)
        return not self._state.unwritable

    def save_names(self) -> None:
        """Save what counts if other names or cuts are worth saving now than were saved with it."""
        state = self._state
        if self._names(state.ledger) != state.names_saved or self._cut() != state.cut_saved:
            self.save()

    def _saved(self, state: State) -> State:
        self._steps("save")
        names, cut = self._names(state.ledger), self._cut()
        extra = {NAMES: {number: [*spot] for number, spot in names.items()}} if names else {}
        cuts = {SAVED: cuts_as_saved(cut)} if cut else {}
        try:
            self._store.save(
                state.ledger,
                {
                    LISTED: state.listening, MACHINE: as_saved(state.node.machine),
                    ANSWERS: state.node.rules.answers, **extra, **cuts,
                },
            )  # fmt: skip
        except CheckpointUnwritableError as error:
            if not state.unwritable:
                self._reporter.problem("checkpoint", str(error))
            return replace(state, unwritable=str(error))
        return replace(state, saved=state.ledger, names_saved=names, cut_saved=cut, unwritable="")
