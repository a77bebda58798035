"""Fixtures of the tests with real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .runs import Runs


@pytest.fixture
def runs() -> Iterator[Runs]:
    """The command line in a base directory of its own; nothing may be left of it at the end."""
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))  # short: paths of unix sockets have at most 107 bytes
    made = Runs(base)
    try:
        yield made
        made.assert_nothing_left()
    finally:
        made.close()
        shutil.rmtree(base, ignore_errors=True)
