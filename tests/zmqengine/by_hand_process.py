"""A service in a process of its own, run by hand at an endpoint of the test's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


class ByHand:
    """Starts it, and is ready when the service says so."""

    def __init__(self, folder: Path, source: str, *args: str, name: str = "service") -> None:
        """source: Python source of a module whose last line runs the service."""
        path = folder / f"{name}.py"
        path.write_text(source)
        self.endpoint = f"ipc://{folder}/{name}"
        args = tuple(arg.replace("ENDPOINT", self.endpoint) for arg in args)
        self.process = subprocess.Popen(
            [sys.executable, str(path), "--bind", self.endpoint, *args],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        lines = []
        while "is ready" not in (line := self.process.stdout.readline()):
            lines.append(line)
            assert line, f"it ended before it was ready:\n{''.join(lines)}"

    def stop(self) -> str:
        """End it; what it wrote since it was ready."""
        self.process.terminate()
        output, _ = self.process.communicate(timeout=10)
        return output
