"""Fixtures of the tests with real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .llm import Llm
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


@pytest.fixture(scope="session")
def llm() -> Iterator[Llm]:
    """The engine with the embedded model in its exact mode, for all tests that only talk to it."""
    base = Path(tempfile.mkdtemp(prefix="ze-", dir="/tmp"))
    made = Runs(base)
    try:
        made.run("up", "llm", "--detach", "--set", "dtype=float32", "--set", "api.port=0", "--run", "llm")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ZMQENGINE_RUNTIME_DIR", str(base))
            yield Llm(made.services("llm"), "llm")
        made.run("down", "--run", "llm")
        made.assert_nothing_left()
    finally:
        made.close()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
