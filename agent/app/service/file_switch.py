"""The kill switch in the configuration file, read before every write, so that it also stops a plan in the middle.

The service follows its settings between two pieces of work. A piece may be a plan of hundreds of writes, or one that
hangs in the kernel; the switch stops it where it is (safety rule S3: nothing is written from now on).
"""

from __future__ import annotations

from pathlib import Path

from agent.app.setup import config_print
from agent.host.settings_file import observe_only_set


class FileSwitch:
    """True while the file has observeOnly: true; it is read again when one stat(2) shows a change.

    Args:
        config: the configuration file, None where there is none.
    """

    def __init__(self, config: Path | None) -> None:
        self._config = config
        self._seen: tuple[object, bool] = (config_print(config), False)  # as read at the start: the settings say it

    def __call__(self) -> bool:
        """Return True if the file switches writes off; called on the thread that writes, takes no lock."""
        print_, asks = self._seen
        now = config_print(self._config)
        if now != print_:
            asks = self._config is not None and observe_only_set(self._config)
            self._seen = now, asks
        return asks
