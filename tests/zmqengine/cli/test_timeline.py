from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from zmqengine.broker_interface import RunStatus, ServiceStatus
from zmqengine.cli import timeline as cli
from zmqengine.cli.timeline import command, title_of, up_at, view
from zmqengine.errors import Unavailable
from zmqengine.timeline import critical_chain, timeline

from .fake_run import FakeBroker, lines_at, service, status, take_place


def started(name: str, *times: float, after: tuple[str, ...] = ()) -> ServiceStatus:
    """times: spawned, hello, imported, setup, ready."""
    keys = ("spawned_at", "hello_at", "imported_at", "setup_at", "ready_at")
    return service(name, after=list(after), **dict(zip(keys, times, strict=True)))


A = started("a", 100.0, 100.5, 100.6, 100.6, 101.0)
B = started("b", 100.0, 100.6, 100.7, 101.0, 105.0, after=("a",))
RESTARTED = started("c", 200.0, 200.5, 200.6, 200.6, 201.0, after=("a",))


def shown(width: int, *services: ServiceStatus, left_out: tuple[str, ...] = ()) -> list[str]:
    return lines_at(
        width, view(timeline(services), critical_chain(services), left_out, "start of run r: 5.00 s", width)
    )


@pytest.mark.parametrize("width", [80, 120])
def test_bars_stand_side_by_side_and_what_is_critical_is_marked_without_colour(width: int) -> None:
    title, header, a, b, *_ = shown(width, A, B)
    assert title == "start of run r: 5.00 s"
    assert header.split() == ["service", "▒", "spawn", "▓", "import", "·", "wait", "█", "setup"]
    assert a.split()[2:] == ["*0.50", "*0.10", "0.00", "*0.40"]
    assert b.split()[2:] == ["0.60", "0.10", "0.30", "*4.00"]
    assert len(header) <= width
    bar_a, bar_b = a.split()[1], b.split()[1]
    assert len(bar_b) == pytest.approx(5 * len(bar_a), abs=5)
    assert bar_b.count("█") == pytest.approx(0.8 * len(bar_b), abs=1)


def test_the_critical_chain_is_told_in_words() -> None:
    assert shown(120, A, B)[-1] == (
        "* critical, one after the other: a: spawn 0.50, import 0.10, setup 0.40 → b: setup 4.00 s"
    )


def test_a_name_that_is_too_long_is_cut_and_leaves_room_for_the_bar() -> None:
    name = "n" * 40
    line = shown(80, started(name, 100.0, 100.5, 100.6, 100.6, 101.0))[2]
    assert line.startswith("n" * 23 + "…")
    assert "█" in line


def test_a_start_that_took_no_time_at_all_can_be_drawn() -> None:
    assert shown(80, started("a", *[100.0] * 5))[2].split() == ["a", "*0.00", "*0.00", "0.00", "*0.00"]


def run(monkeypatch: pytest.MonkeyPatch, answer: RunStatus, *args: str) -> str:
    take_place(monkeypatch, cli, FakeBroker(answer))
    done = CliRunner().invoke(command, args, catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_service_that_was_started_anew_later_is_named_and_does_not_squeeze_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = run(monkeypatch, status(A, B, RESTARTED))
    assert "are not READY: c" in output
    assert "c: setup" not in output
    assert "*4.00" in output


def test_json_has_seconds_since_the_first_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = json.loads(run(monkeypatch, status(A, B), "--json"))
    assert phases[-1] == {
        "service": "b", "phase": "setup", "start_s": 1.0, "end_s": 5.0, "critical": True,
    }  # fmt: skip


def test_pictures_are_written_and_nothing_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    svg, html = tmp_path / "t.svg", tmp_path / "t.html"
    assert run(monkeypatch, status(A, B), "--svg", str(svg), "--html", str(html)) == ""
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    assert svg.read_text() in html.read_text()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(service("a"), ready_after_s=None), "has become READY yet"),
        (status(RESTARTED), "started anew since"),
    ],
)
def test_without_anything_to_show_it_says_why(monkeypatch: pytest.MonkeyPatch, answer: RunStatus, why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        run(monkeypatch, answer)


def test_a_start_that_goes_on_is_called_so_and_leaves_nobody_out() -> None:
    going_on = status(A, ready_after_s=None)
    assert title_of(going_on) == "start of run r, which is not over yet"
    assert up_at(going_on) is None
    assert up_at(status(A)) == 105.0
