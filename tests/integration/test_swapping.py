"""Swapping a service while it is used: no call fails, none is lost, and what does not fit never gets one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zmqengine import connect

from .runs import Runs, wait_until

A = {"name": "a", "impl": "Echo", "stop": {"drain": 5.0}}
STAND_INS = "tests.integration.stand_ins"


@pytest.fixture
def swapping(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(runs.base))
    runs.run("up", runs.table(A, {"name": "r", "impl": "Relay"}), "--detach")
    yield runs
    runs.run("down")


class Caller:
    """Calls all the time, and remembers what went wrong."""

    def __init__(self, service: str, method: str) -> None:
        self.calls = 0
        self.errors: list[str] = []
        self._service, self._method = service, method
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with connect(self._service, deadline_s=30) as client:
            while not self._stop.is_set():
                text = f"call {self.calls}"
                try:
                    assert getattr(client, self._method)(text=text) == text
                except Exception as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                self.calls += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def incarnation(runs: Runs) -> str:
    return str(runs.services()["a"]["incarnation"])


@pytest.mark.parametrize("mode", ["start_first", "stop_first"])
def test_no_call_fails_while_a_service_is_swapped(swapping: Runs, mode: str) -> None:
    callers = [Caller("a", "echo"), Caller("r", "relay")]
    try:
        for number in range(5):
            before, calls = incarnation(swapping), [caller.calls for caller in callers]
            impl = f"{STAND_INS}:{'Echo2' if number % 2 == 0 else 'Echo'}"
            swap = ["swap", "a", "--mode", mode, "--json", *(["--impl", impl] if number < 3 else [])]
            swapped = json.loads(swapping.run(*swap).stdout)
            assert (swapped["old"], swapped["new"]) == (before, incarnation(swapping))
            assert swapped["old"] != swapped["new"]
            wait_until(lambda calls=calls: all(c.calls > n + 10 for c, n in zip(callers, calls, strict=True)))
    finally:
        for caller in callers:
            caller.stop()
    if mode == "start_first":
        assert [caller.errors for caller in callers] == [[], []]
    else:  # a call that was in flight when the old one was stopped is not made again by itself
        assert all(e.startswith(("PeerLost", "Unavailable")) for caller in callers for e in caller.errors)
    wait_until(lambda: set(swapping.services()) == {"a", "r"}, 10, "the old ones are gone")


def test_a_stream_in_flight_ends_on_the_incarnation_that_it_began_with(swapping: Runs) -> None:
    with connect("a") as client:
        stream = iter(client.count(100_000))
        read = [next(stream) for _ in range(3)]
        swapping.run("swap", "a", "--impl", f"{STAND_INS}:Echo2")
        with connect("a") as other:
            assert other.twice(text="x") == "xx"
        read += list(stream)
    assert read == list(range(100_000))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--impl", f"{STAND_INS}:OtherEcho"], "it does not fit in the place of a: has no count; echo has other types"),
        (["--impl", f"{STAND_INS}:Relay"], "it speaks relay/1"),
        (["--impl", f"{STAND_INS}:Nobody"], "no Service class 'Nobody'"),
        (["--impl", "no_such_module:X"], "no module 'no_such_module'"),
        (["--command", "/no/such/program --fast"], "cannot run '/no/such/program'"),
        (["--set", "speed=3"], "speed"),
        (["--mode", "stop_first", "--impl", f"{STAND_INS}:Nobody"], "is started again"),
    ],
)
def test_a_candidate_that_fails_leaves_the_old_one_serving_and_says_why(
    swapping: Runs, arguments: list[str], reason: str
) -> None:
    before = incarnation(swapping)
    caller = Caller("a", "echo")
    try:
        done = swapping.run("swap", "a", *arguments, ok=False)
    finally:
        wait_until(lambda: swapping.services()["a"]["state"] == "READY", 10)
        caller.stop()
    assert done.returncode == 1
    assert "a was not swapped" in done.stderr
    assert reason in done.stderr
    if "stop_first" not in arguments:
        assert incarnation(swapping) == before
        assert caller.errors == []
    assert swapping.run("call", "a", "echo", "text=hi").stdout == '"hi"\n'
    assert set(swapping.services()) == {"a", "r"}


def test_what_cannot_be_swapped_is_refused(swapping: Runs) -> None:
    assert "has no service 'b'" in swapping.run("swap", "b", ok=False).stderr
    assert "either --impl or --command" in swapping.run("swap", "a", "--impl", "x:Y", "--command", "z", ok=False).stderr
    assert "is not of the form" in swapping.run("swap", "a", "--set", "x", ok=False).stderr


def test_an_option_is_changed_by_a_swap_and_stays_changed(swapping: Runs, tmp_path: Path) -> None:
    swapping.run("swap", "a", "--impl", f"{STAND_INS}:Configured", "--set", "greeting=hello")
    assert swapping.run("call", "a", "echo", "text=x").stdout == '"hello x"\n'
    swapping.run("restart", "a")
    assert swapping.run("call", "a", "echo", "text=x").stdout == '"hello x"\n'
