"""What the services write: captured line by line with time and stream, rotated by size, read back merged.

A line of a log file is ``SECONDS STREAM TEXT``: epoch seconds with microseconds, ``out`` or ``err``, the text.
"""

from __future__ import annotations

import collections
import heapq
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAX_LINE_BYTES = 16 * 1024
"""A longer line is cut into several."""
MAX_FILE_BYTES = 16 * 1024 * 1024
"""Size at which a log is rotated; one older file is kept."""
LAST_LINES = 20


class LogWriter:
    """The log of one service, over all its incarnations."""

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = MAX_FILE_BYTES,
        clock: Callable[[], float] = time.time,
        echo: Callable[[str, str], object] | None = None,
    ) -> None:
        """echo: also given each (stream, line)."""
        self.path = path
        self._max_bytes = max_bytes
        self._clock = clock
        self._echo = echo
        self._partial: dict[str, bytes] = {}
        self._last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
        self._file: BinaryIO = _open_private(path)
        self._size = self._file.tell()

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines that were written, for a message about a crash."""
        return tuple(self._last)

    def feed(self, stream: str, data: bytes) -> None:
        """Take in what came out of a pipe; incomplete lines wait for their rest."""
        *lines, rest = (self._partial.get(stream, b"") + data).split(b"\n")
        while len(rest) > MAX_LINE_BYTES:
            lines.append(rest[:MAX_LINE_BYTES])
            rest = rest[MAX_LINE_BYTES:]
        self._partial[stream] = rest
        if lines:
            self._write(stream, lines)

    def flush(self) -> None:
        """The pipe is closed: write what is incomplete."""
        for stream, rest in self._partial.items():
            if rest:
                self._write(stream, [rest])
        self._partial.clear()

    def forget(self) -> None:
        """A new incarnation begins: its last lines are its own."""
        self._last.clear()

    def close(self) -> None:
        """Write what is incomplete, and close the file."""
        self.flush()
        self._file.close()

    def _write(self, stream: str, lines: list[bytes]) -> None:
        stamp = f"{self._clock():.6f} {stream} ".encode()
        pieces = []
        for line in lines:
            for start in range(0, max(1, len(line)), MAX_LINE_BYTES):
                piece = line[start : start + MAX_LINE_BYTES]
                pieces.append(stamp + piece + b"\n")
                text = piece.decode("utf-8", "replace").rstrip("\r")
                self._last.append(text)
                if self._echo is not None:
                    self._echo(stream, text)
        block = b"".join(pieces)
        if self._size + len(block) > self._max_bytes and self._size:
            self._rotate()
        self._file.write(block)
        self._size += len(block)

    def _rotate(self) -> None:
        self._file.close()
        self.path.replace(self.path.with_name(self.path.name + ".1"))
        self._file = _open_private(self.path)
        self._size = 0


@dataclass(frozen=True, slots=True, order=True)
class LogLine:
    """One line, as it is read back."""

    at: float
    """Epoch seconds."""
    service: str
    stream: str
    text: str


def _open_private(path: Path) -> BinaryIO:
    """To append to: what services write is for their user alone."""
    return open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def log_path(directory: Path, service: str) -> Path:
    """Where a service's log is."""
    return directory / f"{service}.log"


def parse_line(service: str, line: bytes) -> LogLine:
    """One line of a log file; a damaged one is given as it is."""
    text = line.decode("utf-8", "replace").rstrip("\n")
    stamp, _, rest = text.partition(" ")
    stream, _, message = rest.partition(" ")
    try:
        return LogLine(float(stamp), service, stream, message)
    except ValueError:
        return LogLine(0.0, service, "?", text)


def read_merged(directory: Path, services: list[str]) -> Iterator[LogLine]:
    """The lines of several services in time order, older files first."""
    return heapq.merge(*(_read(directory, service) for service in services))


def _read(directory: Path, service: str) -> Iterator[LogLine]:
    path = log_path(directory, service)
    for part in (path.with_name(path.name + ".1"), path):
        if part.exists():
            with part.open("rb") as file:
                for line in file:
                    yield parse_line(service, line)


class Follower:
    """Reads on in one log where the last read ended, across rotations."""

    def __init__(self, directory: Path, service: str) -> None:
        self.service = service
        self._path = log_path(directory, service)
        self._file: BinaryIO | None = None
        self._inode = 0
        self._rest = b""

    def skip(self) -> None:
        """Begin at the end."""
        if self._open():
            assert self._file is not None
            self._file.seek(0, 2)

    def read(self) -> list[LogLine]:
        """What has come since the last read."""
        lines: list[LogLine] = []
        if self._file is not None or self._open():
            lines += self._take()
        try:
            rotated = self._path.stat().st_ino != self._inode
        except FileNotFoundError:
            return lines
        if rotated and self._open():
            lines += self._take()
        return lines

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> bool:
        self.close()
        try:
            self._file = self._path.open("rb")
        except FileNotFoundError:
            self._file = None
            return False
        self._inode = self._path.stat().st_ino
        self._rest = b""
        return True

    def _take(self) -> list[LogLine]:
        assert self._file is not None
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [parse_line(self.service, line) for line in lines]
