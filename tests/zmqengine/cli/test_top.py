from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from zmqengine.cli import top
from zmqengine.cli.top import COLUMNS, Rates, ago, look, seconds, size, view
from zmqengine.errors import Unavailable
from zmqengine.lifecycle import State

from .fake_run import FakeBroker, lines_at, service, status, take_place

LONG = service("a-service-whose-name-is-as-long-as-they-get", State.QUARANTINED, restarts=123, calls=10**9,
               uptime_s=86400.0 * 12, rss_bytes=123_400_000_000, p50_s=0.0123, p99_s=123.4, in_flight=9999,
               queued=9999, error="it failed 5 times within 60 s\n  Traceback")  # fmt: skip


def test_calls_a_second_are_of_the_time_between_two_looks() -> None:
    rates = Rates()
    assert rates.calls_per_s(service("a", calls=100), 10.0) is None
    assert rates.calls_per_s(service("a", calls=150), 10.5) == 100.0
    assert rates.calls_per_s(service("a", calls=150), 11.5) == 0.0


def test_a_new_incarnation_counts_from_its_own_beginning() -> None:
    rates = Rates()
    rates.calls_per_s(service("a", calls=100), 10.0)
    assert rates.calls_per_s(service("a", calls=3, incarnation="i2"), 11.0) is None
    assert rates.calls_per_s(service("a", calls=5, incarnation="i2"), 12.0) == 2.0


def test_two_looks_at_the_same_moment_give_no_rate() -> None:
    rates = Rates()
    rates.calls_per_s(service("a", calls=1), 10.0)
    assert rates.calls_per_s(service("a", calls=2), 10.0) is None


def test_the_cpu_time_of_a_process_is_told_from_the_second_look_on_and_not_after_its_end() -> None:
    rates = Rates()
    assert rates.cpu_percent(None) is None
    assert rates.cpu_percent(os.getpid()) is None
    assert (rates.cpu_percent(os.getpid()) or 0.0) >= 0.0
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert rates.cpu_percent(child.pid) is None
    assert rates.cpu_percent(child.pid) is None


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_is_cut_however_long_a_name_is(width: int) -> None:
    broker = FakeBroker(status(LONG, service("b")))
    lines = lines_at(width, view(*look(broker, Rates())))  # type: ignore[arg-type]
    assert lines[0] == "run r: up, 1 of 2 services READY"
    assert lines[1].split() == list(COLUMNS)
    assert max(map(len, lines)) <= width
    assert lines[2].split()[1:] == [
        "QUARANTINED", "123", "12d00", "-", "123.4G", "-", "12ms", "123.4s", "9999", "9999",
    ]  # fmt: skip


def test_why_a_service_is_down_stands_below_the_table() -> None:
    lines = lines_at(80, view(*look(FakeBroker(status(LONG)), Rates())))  # type: ignore[arg-type]
    assert lines[-1].startswith(LONG.name)
    assert "it failed 5 times" in lines[-1]
    assert "Traceback" not in "".join(lines)


def test_an_old_error_of_a_service_that_is_ready_again_is_not_shown() -> None:
    lines = lines_at(80, view(*look(FakeBroker(status(service("a", error="it was killed"))), Rates())))  # type: ignore[arg-type]
    assert "killed" not in "".join(lines)


def test_one_look_is_taken_after_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker(status(service("a", calls=0)), status(service("a", calls=50, queued=7)))
    take_place(monkeypatch, top, broker)
    done = CliRunner().invoke(top.command, ["--json", "--interval", "0.5"])
    assert broker.idled == [0.5]
    (row,) = json.loads(done.output)
    assert (row["name"], row["state"], row["queued"]) == ("a", "READY", 7)
    assert row["calls_per_s"] > 0


def test_a_run_that_goes_away_ends_the_view_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker(*[status(service("a"))] * 3, Unavailable("nobody is there"))
    take_place(monkeypatch, top, broker)
    monkeypatch.setattr(top, "interactive", lambda: True)
    done = CliRunner().invoke(top.command)
    assert done.exit_code == 1
    assert "the run is gone: nobody is there" in done.output


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0.4, "0s"), (59.9, "59s"), (60, "1m00"), (3599, "59m59"), (3600, "1h00"), (86399, "23h59"),
        (86400, "1d00"), (273600, "3d04"),
    ],
)  # fmt: skip
def test_a_time_is_told_in_five_letters(value: float | None, text: str) -> None:
    assert ago(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (28e-6, "28us"), (999.4e-6, "999us"), (999.6e-6, "1.0ms"), (3.14e-3, "3.1ms"), (9.96e-3, "10ms"),
        (0.12, "120ms"), (0.9994, "999ms"), (0.9996, "1.0s"), (61.0, "61.0s"),
    ],
)  # fmt: skip
def test_a_latency_is_told_in_the_unit_that_fits(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (29e6, "29M"), (999.4e6, "999M"), (1.25e9, "1.2G")])
def test_memory_is_told_in_mega_and_gigabytes(value: float | None, text: str) -> None:
    assert size(None if value is None else int(value)) == text
