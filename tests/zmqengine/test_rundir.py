"""A run directory belongs to one launcher, and what a killed one left is recognised and cleared."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from zmqengine.errors import ConfigError, NotFound
from zmqengine.rundir import Process, RunDirectory, RunState, list_runs, process_of


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path("/tmp") / f"zr{os.getpid()}-{tmp_path_factory.mktemp('x').name}"
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(path))
    yield path
    subprocess.run(["rm", "-rf", str(path)], check=True)


def test_a_second_launcher_of_one_name_is_refused_with_the_pid_of_the_first() -> None:
    first = RunDirectory.create("x")
    me = process_of("launcher", os.getpid())
    assert me is not None
    first.write_state(RunState(run="x", launcher=me))
    with pytest.raises(ConfigError, match=rf"up already \(pid {os.getpid()}\)"):
        RunDirectory.create("x")
    first.close()
    RunDirectory.create("x").close()


def test_the_directory_is_private_and_a_link_in_its_place_is_refused(base: Path, tmp_path: Path) -> None:
    RunDirectory.create("x").close()
    assert base.joinpath("x").stat().st_mode & 0o777 == 0o700
    base.joinpath("y").symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="not a directory of this user"):
        RunDirectory.create("y")


def test_a_run_that_is_not_there_is_told_with_those_that_are() -> None:
    run = RunDirectory.create("there")
    with pytest.raises(NotFound, match="no run 'gone'; alive: there"):
        RunDirectory.open("gone")
    assert [r.name for r in list_runs()] == ["there"]
    run.close()
    assert list(list_runs()) == []


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 41, "-x", "a b"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="run's name"):
        RunDirectory.create(name)


def test_a_path_too_long_for_unix_sockets_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(tmp_path / ("x" * 90)))
    with pytest.raises(ConfigError, match="ZMQENGINE_RUNTIME_DIR"):
        RunDirectory.create("x")


def test_what_a_killed_launcher_left_is_cleared_and_nothing_else(base: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        run = RunDirectory.create("x")
        mine = process_of("worker", child.pid)
        assert mine is not None
        # Another process that has the pid of a service that ended long ago.
        recycled = Process(name="old", pid=other.pid, started=mine.started - 1000)
        shm = Path(f"/dev/shm/zmqengine-test-{os.getpid()}")
        shm.write_bytes(b"x")
        run.write_state(RunState(run="x", launcher=mine, services=[mine, recycled], shared_memory=[shm.name]))
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(run.path / "worker.data"))
        (run.path / "logs" / "worker.log").write_text("kept")
        os.close(run._lock)  # as the kernel does when a launcher dies
        again = RunDirectory.create("x")
        child.wait(5)
        assert not psutil.pid_exists(child.pid)
        assert other.poll() is None
        assert not shm.exists()
        assert not (run.path / "worker.data").exists()
        assert (run.path / "logs" / "worker.log").read_text() == "kept"
        again.close()
    finally:
        for process in (child, other):
            process.kill()
            process.communicate()


def test_a_state_file_that_is_damaged_is_taken_for_none(base: Path) -> None:
    run = RunDirectory.create("x")
    (run.path / "state.json").write_text("{")
    assert run.read_state() is None
    run.close()
