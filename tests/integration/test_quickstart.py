"""What `scripts/quickstart --check` does once the environment is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_check_asks_the_model_and_leaves_nothing() -> None:
    before = set(Path("/tmp").glob("ze-*"))
    done = subprocess.run(
        [sys.executable, "scripts/quickstart_check.py"], cwd=ROOT, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "asked:    What is the capital of France?" in done.stdout
    assert "Paris" in done.stdout
    assert "run check is down" in done.stdout
    assert set(Path("/tmp").glob("ze-*")) - before == set()
