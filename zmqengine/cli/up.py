"""`zmqengine up [TABLE]`"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from .. import transport
from ..broker_interface import Event
from ..errors import ConfigError, ZmqEngineError
from ..guard import Guard
from ..keys import folder_of
from ..logging_setup import configure_logging
from ..named_tables import find_table
from ..rundir import RunDirectory, base_directory, process_of
from ..table import Table
from .options import interactive, run_option
from .render import make_renderer


@click.command("up")
@click.argument("table", required=False)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="An option of the table (model=PATH), or of one row (api.port=0). Repeatable.")  # fmt: skip
@click.option("--detach", is_flag=True, help="Return when all is READY (or with the cause), and leave it running.")
@click.option("--verbose", is_flag=True, help="Also print what the services write.")
@run_option
def command(table: str | None, settings: tuple[str, ...], detach: bool, verbose: bool, run: str) -> None:
    """Start the services of TABLE in order, and supervise them until they are stopped.

    TABLE is a TOML file or a registered name; without it ./zmqengine.toml if there is one, else `llm`.
    """
    found = find_table(table, settings)  # before anything starts
    check_keys(found, run)
    if detach:
        sys.exit(detached(found, run))
    sys.exit(serve(found, run, verbose=verbose))


def check_keys(table: Table, run: str) -> None:
    """Raises ConfigError, with what to do, where a row is to be served with CURVE and keys are missing."""
    for row in table.rows:
        if row.binding.needs_keys:
            folder = folder_of(base_directory() / run)
            try:
                folder.server(row.bind)
            except ConfigError as error:
                raise ConfigError(f"service {row.name!r}: {error}") from None


def serve(table: Table, run: str, *, verbose: bool = False, report_fd: int = -1) -> int:
    """Host the broker in this process until everything is down; the exit code.

    report_fd: a pipe that is told of the start, one JSON event a line, instead of the terminal.
    """
    from ..broker import Broker

    configure_logging("launcher", run)
    directory = RunDirectory.create(run)
    renderer = make_renderer(table, interactive() and report_fd < 0, run)

    def report(event: Event) -> None:
        nonlocal report_fd
        if report_fd >= 0:
            try:
                os.write(report_fd, msgspec.json.encode(event) + b"\n")
            except BrokenPipeError:  # whoever waited for the start was killed; the run goes on
                os.close(report_fd)
                report_fd = -1
                return
            if event.kind in ("up", "stopped"):
                os.close(report_fd)
                report_fd = -1
        else:
            renderer.show(event)

    def echo(service: str, stream: str, line: str) -> None:
        click.echo(f"{service}| {line}")

    guard = Guard(directory.lock, directory.clear_stale)
    try:
        directory.guard = process_of("guard", guard.pid)
        broker = Broker(table, directory, report=report, echo=echo if verbose else None)
        return asyncio.run(broker.run())
    finally:
        renderer.close()
        transport.finish()
        guard.close()
        directory.close()


def detached(table: Table, run: str) -> int:
    """Start a launcher in a session of its own, show its start, and return when it is up (0) or has failed (1)."""
    directory = RunDirectory.create(run)  # refuse a run that is alive here, where the message is seen
    output = launcher_log(directory)
    directory.close()
    read, write = os.pipe()
    # A fork of this process, which has no thread and no socket yet: a fresh interpreter would spend 0.4 s on what is
    # imported and read here already.
    launcher = os.fork()
    if launcher == 0:
        os.close(read)
        _be_launcher(table, run, write, output)
    os.close(write)
    try:
        return _show_start(read, table, run, launcher, output)
    except KeyboardInterrupt:
        os.kill(launcher, signal.SIGINT)
        os.waitpid(launcher, 0)
        click.echo("stopped", err=True)
        return 130


def _be_launcher(table: Table, run: str, report_fd: int, output: Path) -> NoReturn:
    """In the forked child: leave the terminal, and serve."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        stderr = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for source, target in ((null, 0), (null, 1), (stderr, 2)):
            os.dup2(source, target)
        os.close(null)
        os.close(stderr)
        code = serve(table, run, report_fd=report_fd)
    except BaseException:
        traceback.print_exc()
    finally:
        # Not sys.exit: what this process inherited of the command is the parent's to unwind and to flush.
        os._exit(code)


def launcher_log(directory: RunDirectory) -> Path:
    """Where a detached launcher writes what goes wrong with itself."""
    return directory.path / "launcher.log"


def _show_start(read: int, table: Table, run: str, launcher: int, output: Path) -> int:
    renderer = make_renderer(table, interactive(), run)
    failed = False
    with os.fdopen(read, "rb") as events:
        for line in events:
            event = msgspec.json.decode(line, type=Event)
            renderer.show(event)
            failed = failed or event.kind == "failed"
            if event.kind == "up":
                renderer.close()
                return 0
    renderer.close()
    # Its pipe is closed without "up": it ends, or has ended.
    code = os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1])
    if not failed:
        last = output.read_text(errors="replace").strip().splitlines()[-5:]
        raise ZmqEngineError("\n".join([f"the launcher ended with code {code} before the start was over:", *last]))
    return 1
