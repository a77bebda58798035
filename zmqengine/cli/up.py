"""`zmqengine up [TABLE]`"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import msgspec

from ..broker_interface import Event
from ..errors import ZmqEngineError
from ..logging_setup import configure_logging
from ..named_tables import find_table
from ..rundir import RunDirectory
from ..table import Table
from .options import interactive, run_option
from .render import make_renderer

REPORT_FD = "ZMQENGINE_REPORT_FD"
"""Tells a detached launcher the pipe in which it reports its start, one JSON event a line."""


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
    if detach:
        sys.exit(detached(found, table, settings, run))
    sys.exit(serve(found, run, verbose=verbose))


def serve(table: Table, run: str, *, verbose: bool = False) -> int:
    """Host the broker in this process until everything is down; the exit code."""
    from ..broker import Broker

    configure_logging("launcher", run)
    directory = RunDirectory.create(run)
    report_fd = int(os.environ.pop(REPORT_FD, "-1"))
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

    broker = Broker(table, directory, report=report, echo=echo if verbose else None)
    try:
        return asyncio.run(broker.run())
    finally:
        renderer.close()
        directory.close()


def detached(table: Table, name: str | None, settings: tuple[str, ...], run: str) -> int:
    """Start a launcher in a session of its own, show its start, and return when it is up (0) or has failed (1)."""
    directory = RunDirectory.create(run)  # refuse a run that is alive here, where the message is seen
    output = launcher_log(directory)
    directory.close()
    read, write = os.pipe()
    argv = [sys.executable, "-m", "zmqengine.cli.main", "up", *([name] if name else []), "--run", run]
    for setting in settings:
        argv += ["--set", setting]
    with output.open("ab") as stderr:
        launcher = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(write,),
            start_new_session=True,
            env={**os.environ, REPORT_FD: str(write)},
        )
    os.close(write)
    try:
        return _show_start(read, table, run, launcher, output)
    except KeyboardInterrupt:
        launcher.send_signal(signal.SIGINT)
        launcher.wait()
        click.echo("stopped", err=True)
        return 130


def launcher_log(directory: RunDirectory) -> Path:
    """Where a detached launcher writes what goes wrong with itself."""
    return directory.path / "launcher.log"


def _show_start(read: int, table: Table, run: str, launcher: subprocess.Popen[bytes], output: Path) -> int:
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
    code = launcher.wait()  # its pipe is closed without "up": it ends, or has ended
    if not failed:
        last = output.read_text(errors="replace").strip().splitlines()[-5:]
        raise ZmqEngineError("\n".join([f"the launcher ended with code {code} before the start was over:", *last]))
    return 1
