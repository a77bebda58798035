"""`zmqengine`: finds the commands, the toolkit's own and those that installed packages add, and reports errors."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from typing import Any

import click

from ..errors import ZmqEngineError
from ..version import VERSION

COMMANDS = {
    "up": "Start a table of services and supervise them.",
    "down": "Stop a run.",
    "ps": "Show the services of a run.",
    "logs": "Show what the services wrote.",
    "call": "Call a method of a service.",
    "describe": "Show a service's methods and their types.",
    "plan": "Show what `up` would start, without starting it.",
    "run": "Run one service in this terminal.",
    "restart": "Restart one service.",
    "swap": "Replace a service while the system serves.",
    "apply": "Make a run as an edited table says.",
    "top": "Watch the services of a run.",
    "timeline": "Show where the time of the start went.",
    "graph": "Draw who comes after whom.",
    "keys": "Make CURVE keys, and say who may connect from other hosts.",
    "doctor": "Look at this machine, and say what to mend.",
}
"""The toolkit's own commands with their one-line help: a module is imported only when its command is used."""
GROUP = "zmqengine.commands"


class Commands(click.Group):
    """Loads a command when it is asked for: `zmqengine up` must not wait for the imports of `zmqengine bench`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(e.name for e in importlib.metadata.entry_points(group=GROUP))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            command: click.Command = importlib.import_module(f".{cmd_name}", __package__).command
            return command
        for entry in importlib.metadata.entry_points(group=GROUP, name=cmd_name):
            loaded: click.Command = entry.load()
            return loaded
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = list(COMMANDS.items())
        for name in self.list_commands(ctx)[len(COMMANDS) :]:
            command = self.get_command(ctx, name)
            if command is not None:
                rows.append((name, command.get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="zmqengine")
def group() -> None:
    """Services over ZeroMQ: start them in order, look at them, call them, swap them while they serve."""


def main(argv: list[str] | None = None) -> Any:
    """Entry point. An error of ours is one message on stderr and exit code 1; Ctrl-C is exit code 130."""
    try:
        return group.main(args=argv, prog_name="zmqengine", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ZmqEngineError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left, as `| head` does
        sys.exit(141)


if __name__ == "__main__":
    main()
