"""The reference of the command line: the help of every command, as the program prints it.

`python -m tests.docs.cli` writes deploy/docs/cli.md; `make cli-reference` calls it.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from agent.cli import group
from tests.docs import pages

PAGE = pages.DOCS / "cli.md"
WIDTH = 100


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """A command and those below it: (how it is called, its help)."""
    lines = command.get_help(context).splitlines()
    yield context.command_path, "\n".join(line.rstrip() for line in lines)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None:
                yield from commands(found, context_of(found, name, context))


def context_of(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    """A context of the width of the page, whatever the terminal is."""
    settings = {**command.context_settings, "help_option_names": ["-h", "--help"], "terminal_width": WIDTH}
    return click.Context(command, info_name=name, parent=parent, **{**settings, "max_content_width": WIDTH})


def page() -> str:
    """The page as it should be; its head is written by hand."""
    parts = [f"## {name}\n\n```text\n{text}\n```\n" for name, text in commands(group, context_of(group, "numalign"))]
    return "\n".join([pages.head(PAGE), *parts])


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
