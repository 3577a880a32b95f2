"""The small files that are kept beside the saved ledger, by name, and how all of them are removed.

A file that is added to the state folder is named here, or it stays behind when the node is left.
"""

from __future__ import annotations

from agent.app.statedir import state_file
from agent.errors import CheckpointUnwritableError
from agent.host import cpu_files
from agent.host.checkpoint import Checkpoint

BESIDE = (state_file.FILE, *state_file.EARLIER)
"""Names of the files beside the ledger, of earlier versions too."""


def forget(store: Checkpoint) -> None:
    """Remove all that an agent keeps there; the folder, a scratch tree in it and files of other names stay.

    Raises:
        CheckpointUnwritableError: a file cannot be removed.
    """
    store.forget(*BESIDE)
    try:
        cpu_files.forget(store.path.parent)
    except OSError as error:
        raise CheckpointUnwritableError(str(error.filename), f"cannot be removed: {error.strerror}") from error
