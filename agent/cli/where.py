"""Options of the commands that look at a served node from outside: its ledger, machine and cgroups."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from agent.app.offline.offline import Locations
from agent.app.places import AUTO, DEFAULT_STATE

state_dir_option = click.option(
    "--state-dir", type=click.Path(path_type=Path, file_okay=False), default=DEFAULT_STATE, show_default=True
)
config_option = click.option(
    "--config", type=click.Path(path_type=Path), help="The agent's configuration file, if not that of its own pod."
)
root_option = click.option("--root", metavar="MACHINE", help="The machine that it serves, if not this one.")

_OPTIONS = (
    state_dir_option,
    config_option,
    root_option,
    click.option(
        "--cgroup-root", metavar="auto|scratch|PATH", default=AUTO, show_default=True, help="The tree that it served."
    ),
    click.option(
        "--kubepods", default="", metavar="CGROUP", help="The kubelet's root in that tree, where there are several."
    ),
    click.option(
        "--log-dir", type=click.Path(path_type=Path), default=Path("/var/log"), show_default=True, hidden=True
    ),
)


def where_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it gets them as one keyword argument, `where: Locations`."""

    @wraps(command)
    def with_where(
        *, state_dir: Path, config: Path | None, root: str | None, cgroup_root: str, kubepods: str, log_dir: Path,
        **others: Any,  # noqa: ANN401 - whatever options the command has besides
    ) -> None:  # fmt: skip
        given = Locations(
            state=state_dir, config=config, root=root, cgroup_root=cgroup_root, kubepods=kubepods, log_dir=log_dir
        )
        command(where=given, **others)

    for option in reversed(_OPTIONS):
        with_where = option(with_where)
    return with_where
