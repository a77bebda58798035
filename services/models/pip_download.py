"""Has pip download one wheel. pip's own configuration says from where, with which proxy and certificates."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .store_error import DiskFull, Offline, PipMissing, PullFailed

Report = Callable[[str], object]
"""Takes a line that tells how far it is."""

KEPT_LINES = 8
_NO_NETWORK = (
    "Failed to establish a new connection", "NameResolutionError", "Temporary failure in name resolution",
    "Network is unreachable", "Connection refused", "ConnectTimeoutError", "Read timed out", "ProxyError",
    "Max retries exceeded",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended."""

    code: int
    output: str


Runner = Callable[[Sequence[str], Path, Report], Finished]
"""Runs a command in a folder, and reports its lines as they come."""


def run_command(command: Sequence[str], folder: Path, report: Report) -> Finished:
    """Run a command to its end. Its children end with it: it is terminated if this function is left early."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines: list[str] = []
    with subprocess.Popen(
        list(command), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", env=environment,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                report(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    return Finished(process.returncode, "\n".join(lines))


def download_wheel(requirement: str, folder: Path, *, runner: Runner = run_command, report: Report = print) -> Path:
    """Download the wheel of one pinned requirement, without its dependencies, into a folder; answer its path.

    Raises PipMissing, Offline, DiskFull, or PullFailed with the last lines of what pip said.
    """
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input",
        "--disable-pip-version-check", "--no-cache-dir", "--dest", str(folder), requirement,
    ]  # fmt: skip
    try:
        finished = runner(command, folder, report)
    except OSError as error:
        raise PullFailed(f"{sys.executable} could not be run to download {requirement}: {error}") from error
    if finished.code != 0:
        raise _cause(requirement, finished)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        found = ", ".join(w.name for w in wheels) or "none"
        raise PullFailed(f"pip downloaded {requirement}, but left not one wheel but: {found}")
    return wheels[0]


def _cause(requirement: str, finished: Finished) -> PullFailed:
    output = finished.output
    if "No module named pip" in output:
        return PipMissing(
            f"{requirement} could not be downloaded: {sys.executable} has no pip. Run '{sys.executable} -m ensurepip', "
            "and pull again"
        )
    if "No space left on device" in output:
        return DiskFull(f"{requirement} could not be downloaded: the disk is full. Free some of it, and pull again")
    last = "\n  ".join(line for line in output.splitlines()[-KEPT_LINES:] if line.strip())
    if any(sign in output for sign in _NO_NETWORK):
        return Offline(
            f"{requirement} could not be downloaded: pip reached no package index. Check the network, the proxy and "
            f"pip's configuration ('pip config list'), and pull again. pip said:\n  {last}"
        )
    return PullFailed(f"{requirement} could not be downloaded: pip ended with {finished.code}, and said:\n  {last}")
