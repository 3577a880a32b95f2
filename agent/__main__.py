"""The entry point of the command numalign; `python -m agent` is the same."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line. Ctrl-C ends it in silence from its first moment, also while modules are imported."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it stays ignored where somebody wants that
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agent.cli import main as run  # noqa: PLC0415 - see above

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
