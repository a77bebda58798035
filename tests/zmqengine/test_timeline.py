from __future__ import annotations

import itertools
from xml.etree import ElementTree

import pytest

from zmqengine.broker_interface import ServiceStatus
from zmqengine.lifecycle import State
from zmqengine.timeline import critical_chain, of_the_start, timeline
from zmqengine.timeline_svg import to_html, to_svg


def service(name: str, *times: float | None, after: tuple[str, ...] = ()) -> ServiceStatus:
    """times: spawned, hello, imported, setup, ready."""
    keys = ("spawned_at", "hello_at", "imported_at", "setup_at", "ready_at")
    return ServiceStatus(
        name=name, state=State.READY, pid=1, incarnation="i", protocol="p/1", endpoint=None, control=None, restarts=0,
        uptime_s=1.0, rss_bytes=1, after=list(after), **dict(zip(keys, times, strict=True)),
    )  # fmt: skip


A = service("a", 100.0, 100.5, 100.6, 100.6, 101.0)
B = service("b", 100.1, 100.6, 100.7, 101.0, 105.0, after=("a",))
SLOW_IMPORT = service("c", 100.0, 100.4, 106.0, 106.0, 106.5, after=("a", "b"))


def test_phases_are_counted_from_the_first_spawn_and_without_gaps() -> None:
    phases = timeline([A, B])
    assert [(p.service, p.name) for p in phases] == [
        (s, p) for s in ("a", "b") for p in ("spawn", "import", "wait", "setup")
    ]
    assert phases[0].start_s == 0.0
    for one, next_one in itertools.pairwise(phases[:4]):
        assert one.end_s == next_one.start_s
    assert phases[-1].end_s == pytest.approx(5.0)
    assert phases[-1].seconds == pytest.approx(4.0)


def test_the_critical_chain_goes_through_whoever_was_waited_for() -> None:
    assert critical_chain([A, B]) == [("a", "spawn"), ("a", "import"), ("a", "setup"), ("b", "setup")]
    critical = {(p.service, p.name) for p in timeline([A, B]) if p.critical}
    assert critical == {("a", "spawn"), ("a", "import"), ("a", "setup"), ("b", "setup")}


def test_the_critical_chain_stays_where_the_import_was_what_took_long() -> None:
    assert critical_chain([A, B, SLOW_IMPORT]) == [("c", "spawn"), ("c", "import"), ("c", "setup")]


def test_a_service_that_is_not_ready_yet_is_left_out() -> None:
    loading = service("c", 100.0, 100.5, 100.6, 100.7, None, after=("a",))
    assert {p.service for p in timeline([A, loading])} == {"a"}
    assert timeline([loading]) == []
    assert timeline([]) == []
    assert critical_chain([]) == []


def test_a_service_run_by_hand_begins_with_its_hello() -> None:
    by_hand = service("h", None, 102.0, 102.0, 102.0, 102.5)
    spawn = timeline([A, by_hand])[4]
    assert (spawn.service, spawn.name, spawn.seconds) == ("h", "spawn", 0.0)


def test_marks_that_are_missing_take_no_time_and_none_runs_backwards() -> None:
    partly = service("p", 100.0, 100.5, 100.9, None, 101.0)
    assert [p.seconds for p in timeline([partly])] == pytest.approx([0.5, 0.4, 0.1, 0.0])
    adopted = service("q", None, None, None, None, 101.0)
    assert [p.seconds for p in timeline([adopted])] == [0.0] * 4


def test_who_was_started_anew_after_the_start_is_no_part_of_it() -> None:
    anew = service("c", 105.1, 105.2, 105.3, 105.4, 105.5)
    loading = service("d", 100.0, 100.5, 100.6, 100.7, None)
    assert of_the_start([A, B, anew, loading], up_at=105.0) == [A, B]
    assert of_the_start([A, B, anew, loading], up_at=None) == [A, B, anew]


def test_one_that_was_started_anew_meanwhile_is_not_taken_for_what_was_waited_for() -> None:
    a_again = service("a", 102.0, 102.5, 102.6, 102.6, 103.0)
    assert critical_chain([a_again, B]) == [("b", "spawn"), ("b", "import"), ("b", "setup")]


def test_the_picture_is_well_formed_and_has_every_phase() -> None:
    svg = to_svg(timeline([A, B]), 'start of "x" & <y>')
    root = ElementTree.fromstring(svg)
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 8
    assert "b setup: 4.00 s, critical" in titles
    assert "https://" not in svg
    assert "<script" not in svg
    assert svg in to_html(timeline([A, B]), 'start of "x" & <y>')
    assert ElementTree.fromstring(to_svg([], "nothing")) is not None
