"""Logs keep every line of a service, the last words of a crash included, in bounded files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqengine import logs
from zmqengine.logs import Follower, LogWriter, log_path, read_merged


def writer(directory: Path, name: str = "a", **options: object) -> LogWriter:
    return LogWriter(log_path(directory, name), **options)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=40), max_size=30), st.lists(st.integers(1, 50), min_size=1, max_size=10))
def test_lines_are_the_same_however_the_pipe_cuts_them(lines: list[bytes], cuts: list[int]) -> None:
    import tempfile

    data = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines)
    with tempfile.TemporaryDirectory() as name:
        log = writer(Path(name))
        position = 0
        for index in range(len(data)):
            size = cuts[index % len(cuts)]
            log.feed("out", data[position : position + size])
            position += size
        log.close()
        read = [line.text for line in read_merged(Path(name), ["a"])]
    assert read == [line.replace(b"\n", b"").decode("utf-8", "replace") for line in lines]


def test_the_unfinished_last_line_of_a_crash_is_kept(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.feed("err", b"one\nlast words")
    log.flush()
    assert log.last_lines == ("one", "last words")
    log.close()


def test_last_lines_are_those_of_the_incarnation(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.feed("out", b"old\n")
    log.forget()
    log.feed("out", b"new\n")
    assert log.last_lines == ("new",)
    log.close()


def test_a_flood_is_bounded_by_rotation_and_an_endless_line_is_cut(tmp_path: Path) -> None:
    log = writer(tmp_path, max_bytes=100_000)
    for _ in range(50):
        log.feed("out", b"x" * 50_000)
    assert all(len(rest) <= logs.MAX_LINE_BYTES for rest in log._partial.values())
    log.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 250_000


def test_a_line_of_two_streams_is_not_mixed(tmp_path: Path) -> None:
    log = writer(tmp_path)
    log.feed("out", b"he")
    log.feed("err", b"oops\n")
    log.feed("out", b"llo\n")
    log.close()
    assert [(line.stream, line.text) for line in read_merged(tmp_path, ["a"])] == [("err", "oops"), ("out", "hello")]


def test_several_logs_are_merged_in_time_order(tmp_path: Path) -> None:
    now = [0.0]
    a, b = (writer(tmp_path, name, clock=lambda: now[0]) for name in "ab")
    for at, log, text in ((1.0, a, b"1\n"), (2.0, b, b"2\n"), (3.0, a, b"3\n")):
        now[0] = at
        log.feed("out", text)
    a.close()
    b.close()
    assert [line.text for line in read_merged(tmp_path, ["b", "a"])] == ["1", "2", "3"]


@pytest.mark.parametrize("late", [False, True])
def test_a_follower_reads_on_across_a_rotation(tmp_path: Path, late: bool) -> None:
    log = writer(tmp_path, max_bytes=100)
    follower = Follower(tmp_path, "a")
    seen: list[str] = []
    for number in range(20):
        log.feed("out", f"line {number:02d}\n".encode())
        if number % (2 if late else 1) == 0:
            seen += [line.text for line in follower.read()]
    seen += [line.text for line in follower.read()]
    follower.close()
    log.close()
    assert seen == [f"line {n:02d}" for n in range(20)]


def test_a_damaged_line_is_shown_as_it_is(tmp_path: Path) -> None:
    log_path(tmp_path, "a").write_bytes(b"garbage\n")
    assert [line.text for line in read_merged(tmp_path, ["a"])] == ["garbage"]
