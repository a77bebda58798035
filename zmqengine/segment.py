"""Segments of shared memory that carry buffers between processes of one host: their files, names and headers.

A segment is a file in /dev/shm that its owner, the sending process, makes for one peer, and fills again and again: pages
that are new cost ten times a copy into those that are there (measured: 64 MiB in 70 ms, then in 12). Not by
`multiprocessing.shared_memory`, whose resource tracker unlinks, before Python 3.13, what a process merely attached to.

That nothing is left, whoever is killed when:

- The peer unlinks the name when it first attaches (`CLAIMED`): from then on the kernel frees the memory with the last
  of both processes. A name stands only from the making of a segment to the arrival of its first message.
- The owner holds a lock on the file as long as it lives and wants the segment. Where the lock is free, the owner is gone
  or has done with it: the peer forgets it, and whoever finds such a name unlinks it (`unlink_dead`).
- The launcher unlinks the names of an incarnation that has ended (`unlink_of`).

The header tells whose the content is. The owner writes a new `GENERATION` with each content that it lends; the peer writes
that number to `RELEASED` when its last view has ended. One store each, from whichever thread collects the view: a message
would cost a frame, and a socket belongs to one thread. If the connection ends first, the owner lets go of the segment
rather than fill it again: a view that a peer still has never changes under it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import re
import secrets

SHARED_MEMORY = "/dev/shm"
HEADER_BYTES = 4096
"""The content begins on a page of its own."""
MAGIC = int.from_bytes(b"ZESEG\0\0\1", "little")
MAGIC_AT, GENERATION, CLAIMED, RELEASED = range(4)
"""Places in the header, in words of 8 bytes."""
WORDS = 4
NAME = re.compile(r"zmqengine-[A-Za-z0-9_.-]{1,40}-[0-9a-f]{12}-[0-9a-f]{16}")
ALONE = "alone"
"""In a name, in the place of a run."""


class NoRoom(Exception):
    """There is no shared memory for another segment."""


def path_of(name: str) -> str:
    """Where the segment's file is."""
    return f"{SHARED_MEMORY}/{name}"


class Segment:
    """A segment, at its owner. Its capacity is in bytes of content."""

    def __init__(self, run: str, incarnation: str, capacity: int) -> None:
        """Make one. Raises NoRoom where there is too little shared memory, or none."""
        self.capacity = capacity
        self.generation = 0
        self.name, self._fd = _create(f"zmqengine-{run or ALONE}-{incarnation}")
        try:
            # Without this a full /dev/shm would be told by SIGBUS in the middle of a copy.
            os.posix_fallocate(self._fd, 0, HEADER_BYTES + capacity)
            self._map = mmap.mmap(self._fd, HEADER_BYTES + capacity)
        except OSError as error:
            os.unlink(path_of(self.name))
            os.close(self._fd)
            raise NoRoom(f"{SHARED_MEMORY}: {error.strerror}") from None
        whole = memoryview(self._map)
        self._content = whole[HEADER_BYTES:]
        self._header = whole[: WORDS * 8].cast("Q")
        self._header[MAGIC_AT] = MAGIC

    @property
    def claimed(self) -> bool:
        """Whether the peer has attached, and unlinked the name."""
        return bool(self._header[CLAIMED])

    @property
    def free(self) -> bool:
        """Whether no content of it is lent."""
        return self._header[RELEASED] == self.generation

    def lend(self, content: memoryview) -> int:
        """Fill it, and lend that to the peer; the generation."""
        self.generation += 1
        self._header[GENERATION] = self.generation
        self._content[: content.nbytes] = content
        return self.generation

    def close(self) -> None:
        """Let go of it. What the peer has still mapped stays as it is."""
        if not self.claimed:
            with contextlib.suppress(FileNotFoundError):  # it was claimed this moment
                os.unlink(path_of(self.name))
        self._header.release()
        self._content.release()
        self._map.close()
        os.close(self._fd)  # and the lock with it


def _create(prefix: str) -> tuple[str, int]:
    """A new file with our lock on it; its name and descriptor."""
    while True:
        name = f"{prefix}-{secrets.token_hex(8)}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(path_of(name), flags, 0o600)
        except FileExistsError:
            continue
        except OSError as error:
            raise NoRoom(f"{SHARED_MEMORY}: {error.strerror}") from None
        # Whoever looks for dead owners at this moment takes it for one: then it is unlinked already.
        if try_lock(fd) and os.fstat(fd).st_nlink:
            return name, fd
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Whether a segment's lock could be taken: it has no owner. It is held until `fd` is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlink_of(incarnation: str) -> int:
    """Unlink all segments of an incarnation whose process has ended; how many."""
    return sum(_unlink(name) for name in _names() if f"-{incarnation}-" in name[-30:])


def unlink_dead(run: str | None = None) -> int:
    """Unlink the segments (of a run, or all of this user's) whose owner is gone; how many they were."""
    return sum(_unlink_if_dead(name) for name in _names() if run is None or name[: -len(_TAIL)] == f"zmqengine-{run}")


_TAIL = f"-{'0' * 12}-{'0' * 16}"


def _names() -> list[str]:
    try:
        return [name for name in os.listdir(SHARED_MEMORY) if NAME.fullmatch(name)]
    except OSError:
        return []  # no shared memory here


def _unlink(name: str) -> bool:
    try:
        os.unlink(path_of(name))
    except (FileNotFoundError, PermissionError):  # gone by now, or another user's
        return False
    return True


def _unlink_if_dead(name: str) -> bool:
    try:
        fd = os.open(path_of(name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # as above
    try:
        return try_lock(fd) and _unlink(name)
    finally:
        os.close(fd)
