"""Starting, stopping and supervising real processes through the command line."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import psutil
import pytest

from .runs import Runs, wait_until

ECHO = {"name": "a", "impl": "Echo"}


def test_up_is_ready_when_every_service_answers_and_down_leaves_nothing(runs: Runs) -> None:
    table = runs.table(ECHO, {"name": "b", "impl": "Echo"})
    assert "ready in" in runs.run("up", table, "--detach").stdout
    services = {s["name"]: s for s in json.loads(runs.run("ps", "--json").stdout)}
    assert {s["state"] for s in services.values()} == {"READY"}
    a, b = services["a"], services["b"]
    assert a["spawned_at"] <= a["hello_at"] <= a["imported_at"] <= a["setup_at"] <= a["ready_at"] <= b["setup_at"]
    assert b["spawned_at"] <= a["ready_at"], "b is spawned, and may import, before a is ready"
    assert runs.run("call", "b", "echo", "text=hi").stdout == '"hi"\n'
    assert runs.run("call", "a", "count", "limit=3").stdout.split() == ["0", "1", "2"]
    assert "echo/1" in runs.run("describe", "a").stdout
    runs.run("down")
    runs.assert_nothing_left()
    assert "no run 'default'" in runs.run("ps", ok=False).stderr


@pytest.mark.parametrize("when", ["setup", "selftest"])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raise", "RuntimeError: as it was told to"),
        ("exit0", "it ended by itself (exit code 0)"),
        ("exit3", "exit code 3"),
        ("kill", "SIGKILL"),
        ("segv", "SIGSEGV"),
        ("flood", "after a flood"),
        ("child", "exit code 1"),
    ],
)
def test_a_service_that_fails_while_it_starts_ends_the_start_at_once(
    runs: Runs, how: str, words: str, when: str
) -> None:
    table = runs.table(ECHO, {"name": "b", "impl": "Faulty", "options": {"how": how, "when": when}})
    started = time.monotonic()
    done = runs.run("up", table, "--detach", ok=False)
    assert done.returncode == 1
    assert "b did not start (loading)" in done.stderr
    assert words in done.stderr
    if how == "exit3":
        assert "b| last words" in done.stderr
    assert time.monotonic() - started < 15
    runs.assert_nothing_left()


@pytest.mark.parametrize("how", ["hang", "stop"])
def test_a_service_that_hangs_in_setup_is_ended_at_its_deadline(runs: Runs, how: str) -> None:
    table = runs.table(
        {"name": "a", "impl": "Faulty", "ready": {"timeout": 1.0}, "stop": {"term": 0.5}, "options": {"how": how}}
    )
    done = runs.run("up", table, "--detach", ok=False)
    assert "ready.timeout = 1 s" in done.stderr
    if how == "hang":
        assert "Thread" in runs.run("logs").stdout, "its stacks are in its log"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"name": "a", "command": ["/no/such/program"]}, "cannot run '/no/such/program'"),
        ({"name": "a", "impl": "no_such_module:X"}, "no module 'no_such_module'"),
        ({"name": "a", "impl": "Nobody"}, "no Service class 'Nobody'"),
        ({"name": "a", "impl": "Echo", "protocol": "other/1"}, "it speaks echo/1; its row wants other/1"),
        ({"name": "a", "impl": "Faulty", "options": {"hwo": 1}}, "options of a"),
        ({"name": "a", "command": ["true"]}, "exit code 0"),
    ],
)
def test_a_row_that_cannot_work_is_named_with_the_reason(runs: Runs, row: dict, words: str) -> None:
    done = runs.run("up", runs.table(row), "--detach", ok=False)
    assert done.returncode == 1
    assert words in done.stderr, done.stderr


def test_a_program_that_never_says_hello_is_ended_at_its_deadline(runs: Runs) -> None:
    row = {"name": "a", "command": ["cat", "/dev/zero"], "ready": {"timeout": 0.7}, "stop": {"term": 0.5}}
    done = runs.run("up", runs.table(row), "--detach", ok=False)
    assert "HELLO" in done.stderr


def test_a_crash_is_restarted_and_the_others_are_not(runs: Runs) -> None:
    runs.run("up", runs.table(ECHO, {"name": "b", "impl": "Echo"}), "--detach")
    before = runs.services()
    os.kill(before["a"]["pid"], signal.SIGKILL)

    def restarted() -> bool:
        now = runs.services()["a"]
        return now["restarts"] == 1 and now["state"] == "READY"

    wait_until(restarted)
    after = runs.services()
    assert after["a"]["incarnation"] != before["a"]["incarnation"]
    assert after["b"]["incarnation"] == before["b"]["incarnation"]
    assert runs.run("call", "a", "echo", "text=again").stdout == '"again"\n'
    runs.run("down")


def test_a_service_that_crashes_again_and_again_is_quarantined_with_its_last_error(runs: Runs) -> None:
    restart = {"intensity": 1, "period": 60, "backoff": [0.01, 0.01]}
    runs.run(
        "up",
        runs.table(
            {"name": "a", "impl": "Faulty", "restart": restart, "options": {"when": "never"}}, ECHO | {"name": "b"}
        ),
        "--detach",
    )

    def crash() -> bool:
        runs.run("call", "a", "fail", "how=exit7", ok=False)
        return runs.services()["a"]["state"] == "QUARANTINED"

    wait_until(crash)
    assert "exit code 7" in runs.services()["a"]["error"]
    assert runs.services()["b"]["state"] == "READY"
    assert "exit code 7" in runs.run("call", "a", "echo", "text=x", ok=False).stderr
    assert "is replaced by" in runs.run("restart", "a").stdout
    assert runs.services()["a"]["state"] == "READY", "an operator's word ends the quarantine"
    runs.run("down")


def test_a_stalled_loop_is_seen_dumped_and_restarted(runs: Runs) -> None:
    live = {"interval": 0.1, "stall": 0.5}
    runs.run("up", runs.table(ECHO | {"live": live}), "--detach")
    first = runs.services()["a"]["incarnation"]
    runs.run("call", "a", "hang", "--timeout", "0.1", ok=False)
    wait_until(lambda: runs.services()["a"]["incarnation"] != first and runs.services()["a"]["state"] == "READY")
    assert "in hang" in runs.run("logs", "a").stdout
    runs.run("down")


def test_a_stopped_process_is_dead_after_its_misses(runs: Runs) -> None:
    live = {"interval": 0.1, "misses": 3}
    runs.run("up", runs.table(ECHO | {"live": live}), "--detach")
    first = runs.services()["a"]
    os.kill(first["pid"], signal.SIGSTOP)
    wait_until(lambda: runs.services()["a"]["incarnation"] != first["incarnation"])
    wait_until(lambda: runs.services()["a"]["state"] == "READY")
    runs.run("down")


def test_an_operators_restart_replaces_the_incarnation(runs: Runs) -> None:
    runs.run("up", runs.table(ECHO), "--detach")
    assert "is replaced by" in runs.run("restart", "a").stdout
    assert runs.services()["a"]["restarts"] == 1
    runs.run("down")


def test_a_launcher_that_is_killed_takes_its_services_with_it_and_can_be_started_again(runs: Runs) -> None:
    table = runs.table(ECHO, {"name": "b", "impl": "Echo"})
    launcher = runs.start("up", table)
    wait_until(lambda: runs.run("ps", ok=False).returncode == 0 and len(runs.services()) == 2)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not [p for p in runs.processes() if p.status() != psutil.STATUS_ZOMBIE], 2.0, "children die")
    assert "ready in" in runs.run("up", table, "--detach").stdout
    runs.run("down")


@pytest.mark.parametrize("seed", range(6))
def test_ctrl_c_at_any_moment_of_the_start_leaves_nothing(runs: Runs, seed: int) -> None:
    launcher = runs.start("up", runs.table(ECHO, {"name": "b", "impl": "Echo"}, {"name": "c", "impl": "Echo"}))
    delay = random.Random(seed).uniform(0.0, 0.7)
    with pytest.raises(TimeoutError):
        raise TimeoutError if not wait_for_exit(launcher, delay) else AssertionError("it ended by itself")
    launcher.send_signal(signal.SIGINT)
    launcher.wait(10)
    runs.assert_nothing_left()


def wait_for_exit(process: object, seconds: float) -> bool:
    """Whether it ends within this time."""
    import subprocess

    try:
        process.wait(seconds)  # type: ignore[attr-defined]
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_that_asks_for_an_end_stops_the_run(runs: Runs, number: signal.Signals) -> None:
    launcher = runs.start("up", runs.table(ECHO))
    wait_until(lambda: runs.run("ps", ok=False).returncode == 0)
    launcher.send_signal(number)
    assert launcher.wait(10) == 0


def test_two_runs_live_side_by_side_and_one_name_is_taken_once(runs: Runs) -> None:
    table = runs.table(ECHO)
    runs.run("up", table, "--run", "one", "--detach")
    runs.run("up", table, "--run", "two", "--detach")
    assert runs.services("one")["a"]["endpoint"] != runs.services("two")["a"]["endpoint"]
    assert "is up already" in runs.run("up", table, "--run", "one", "--detach", ok=False).stderr
    runs.run("down", "--run", "one")
    assert runs.services("two")["a"]["state"] == "READY"
    runs.run("down", "--run", "two")


def test_a_service_run_by_hand_is_waited_for_joins_and_is_left_alone(runs: Runs) -> None:
    launcher = runs.start("up", runs.table({"name": "a", "external": True}, {"name": "b", "impl": "Echo"}))
    wait_until(lambda: runs.run("ps", ok=False).returncode == 0)
    by_hand = runs.start("run", "tests.integration.stand_ins:Echo", "--run", "default", "--name", "a")
    wait_until(lambda: runs.services()["b"]["state"] == "READY")
    assert runs.services()["a"]["pid"] == by_hand.pid
    assert runs.run("call", "a", "echo", "text=hi").stdout == '"hi"\n'
    by_hand.send_signal(signal.SIGINT)
    assert by_hand.wait(10) == 0
    wait_until(lambda: runs.services()["a"]["state"] == "STOPPED")
    assert launcher.poll() is None
    runs.run("down")
