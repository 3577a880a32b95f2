"""The kill switch in the configuration file, asked before every write: a plan that is being written waits for nobody.

The service follows its settings between two pieces of work. A piece may be a plan of hundreds of writes, or one that
hangs in the kernel; the switch stops it where it is (safety rule S3: nothing is written from now on).
"""

from __future__ import annotations

from pathlib import Path

from agent.app.setup import config_print
from agent.host.settings_file import observe_only_set


class FileSwitch:
    """Whether the file says observeOnly: true; it is read again when it changed, which one stat(2) tells.

    Args:
        config: the configuration file, None where there is none.
    """

    def __init__(self, config: Path | None) -> None:
        self._config = config
        self._seen: tuple[object, bool] = (config_print(config), False)  # as read at the start: the settings say it

    def __call__(self) -> bool:
        """Called from whichever thread writes; takes no lock."""
        print_, asks = self._seen
        now = config_print(self._config)
        if now != print_:
            asks = self._config is not None and observe_only_set(self._config)
            self._seen = now, asks
        return asks
