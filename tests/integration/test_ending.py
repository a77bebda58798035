"""How a run ends: by signals, by the death of its launcher, and under load."""

from __future__ import annotations

import concurrent.futures
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from zmqengine import Client
from zmqengine.errors import DeadlineExceeded, PeerLost, Unavailable, ZmqEngineError
from zmqengine.lifecycle import State
from zmqengine.peer import Location

from .faulty import Faulty
from .runs import Runs, wait_until

ECHO = {"name": "a", "impl": "Echo"}
GONE_S = 2.0
FORCED_S = 2.0
"""After a second signal, nothing is waited for."""


def faulty(runs: Runs, name: str, fault: str, **fields: Any) -> dict[str, Any]:
    """A row of the service of the fault matrix."""
    environ = {"FAULT": fault, "FAULT_MARK": str(mark_of(runs, name))}
    return {"name": name, "impl": "tests.integration.faulty:Faulty", "env": environ, **fields}


def mark_of(runs: Runs, name: str) -> Path:
    return runs.base / f"{name}.mark"


def client_of(runs: Runs, name: str, run: str = "default") -> Client:
    status = runs.services(run)[name]
    return Client(Location(name=name, incarnation=status["incarnation"], endpoint=status["endpoint"]), Faulty)


def is_up(runs: Runs) -> bool:
    return runs.run("ps", ok=False).returncode == 0 and all(
        service["state"] == State.READY for service in runs.services().values()
    )


def test_a_launcher_killed_while_services_load_takes_them_and_their_children_along(runs: Runs) -> None:
    table = runs.table(
        faulty(runs, "parent", "loading:child", after=[]),
        faulty(runs, "deaf", "loading:hang-all", after=[]),
        faulty(runs, "stopped", "loading:sigstop", after=[]),
        faulty(runs, "importing", "importing:hang-all", after=[]),
    )
    launcher = runs.start("up", table)
    wait_until(lambda: all(mark_of(runs, n).exists() for n in ("parent", "deaf", "stopped", "importing")))
    wait_until(lambda: len(runs.processes()) == 8, what="launcher, guard, four services, two children of one")
    launcher.kill()
    runs.assert_nothing_left(GONE_S)
    assert "ready in" in runs.run("up", runs.table(ECHO), "--detach").stdout
    runs.run("down")


def test_a_launcher_killed_while_all_serve_takes_them_and_their_children_along(runs: Runs) -> None:
    runs.run("up", runs.table(ECHO, faulty(runs, "b", "selftest:child")), "--detach")
    with client_of(runs, "b") as client:
        call = client.begin.hold(60.0)
        client.idle(0.05)
        launcher = next(p for p in runs.processes() if "--detach" in p.cmdline())
        launcher.kill()
        with pytest.raises(PeerLost):
            client.wait(call, 2.0)
    runs.assert_nothing_left(GONE_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_start_and_a_second_one_waits_for_nobody(runs: Runs, number: signal.Signals) -> None:
    launcher = runs.start("up", runs.table(ECHO, faulty(runs, "deaf", "loading:hang-all", stop={"term": 60.0})))
    wait_until(mark_of(runs, "deaf").exists)
    launcher.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        launcher.wait(0.7)  # its SIGTERM is ignored, and its time is not over
    launcher.send_signal(number)
    launcher.wait(FORCED_S)
    runs.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_and_a_second_one_forces(runs: Runs, number: signal.Signals) -> None:
    launcher = runs.start("up", runs.table(ECHO, faulty(runs, "b", ":")))
    wait_until(lambda: is_up(runs))
    with client_of(runs, "b") as client:
        call = client.begin.hold(60.0)
        client.idle(0.05)
        launcher.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(0.7)  # the call is in flight
        assert runs.services()["b"]["state"] == State.DRAINING
        assert runs.services()["a"]["state"] == State.READY, "what it depends on serves until it has stopped"
        launcher.send_signal(number)
        launcher.wait(FORCED_S)
        with pytest.raises((PeerLost, Unavailable)):
            client.wait(call, 2.0)


def test_a_stop_under_load_answers_all_that_is_in_flight_and_refuses_the_rest(runs: Runs) -> None:
    runs.run("up", runs.table(ECHO, faulty(runs, "b", ":")), "--detach")
    ends: list[ZmqEngineError] = []
    served = threading.Barrier(5)

    def load() -> None:
        with client_of(runs, "b") as client:
            assert client.hold(0.0)
            served.wait(10)
            try:
                while True:
                    client.hold(0.001)
            except ZmqEngineError as error:
                ends.append(error)

    callers = [threading.Thread(target=load) for _ in range(4)]
    for caller in callers:
        caller.start()
    with client_of(runs, "b") as client:
        served.wait(10)
        held = [client.begin.hold(2.0) for _ in range(200)]
        client.idle(0.1)
        started = time.monotonic()
        down = threading.Thread(target=runs.run, args=("down",))
        down.start()
        wait_until(lambda: ends, what="new calls are refused")
        assert not any(call.done for call in held), "while those in flight are still served"
        assert [client.wait(call, 5.0) for call in held] == [True] * 200
        down.join(10)
        with pytest.raises(PeerLost):
            client.hold(0.0)
    for caller in callers:
        caller.join(5)
    assert time.monotonic() - started < 6
    assert len(ends) == 4
    assert not [error for error in ends if isinstance(error, DeadlineExceeded)]
    assert {type(error) for error in ends} <= {Unavailable, PeerLost}


def test_a_drain_that_is_over_gives_each_call_in_flight_its_error(runs: Runs) -> None:
    runs.run("up", runs.table(faulty(runs, "b", ":", stop={"drain": 0.3})), "--detach")
    with client_of(runs, "b") as client:
        held = [client.begin.hold(60.0) for _ in range(50)]
        client.idle(0.1)
        runs.run("down")
        for call in held:
            with pytest.raises(Unavailable, match="b stops: drained"):
                client.wait(call, 2.0)


def test_twenty_runs_live_side_by_side(runs: Runs) -> None:
    table = runs.table(ECHO)
    names = [f"r{number}" for number in range(20)]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        for done in pool.map(lambda name: runs.run("up", table, "--detach", "--run", name), names):
            assert "ready in" in done.stdout
        endpoints = set()
        for name in names:
            status = runs.services(name)["a"]
            assert status["state"] == State.READY
            endpoints.add(status["endpoint"])
        assert len(endpoints) == 20
        runs.run("down", "--run", names[0])
        assert runs.services(names[1])["a"]["state"] == State.READY
        list(pool.map(lambda name: runs.run("down", "--run", name), names[1:]))
