"""Segments of other processes that this one has attached to: each is mapped once, and its contents are leased one by one.

A lease lasts until the last view of the content is collected, on whichever thread; that is told to the owner by one store
in the segment's header (`segment`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import stat
import threading
from typing import Any

from .segment import CLAIMED, GENERATION, HEADER_BYTES, MAGIC, MAGIC_AT, NAME, RELEASED, WORDS, path_of, try_lock

MAX_ATTACHED = 1024
"""Segments that a process is attached to at most."""


class Stale(ValueError):
    """What a message says to be in a segment is not, or not any more."""


class Attachment:
    """One segment of another process, mapped."""

    def __init__(self, name: str) -> None:
        """Attach. Raises Stale where there is no such segment, or it is not one of ours."""
        self.name = name
        self.leased = 0
        """The generation that is leased; 0: none."""
        try:
            self._fd = os.open(path_of(name), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise Stale(f"segment {name}: {error.strerror}: its owner has let go of it, or it is on another host "
                        "(or in another container), which ZMQENGINE_SHARED_MEMORY=0 is for") from None  # fmt: skip
        try:
            self._map = self._mapped()
        except (OSError, ValueError) as error:
            os.close(self._fd)
            raise Stale(f"segment {name}: {error}") from None
        self.capacity = len(self._map) - HEADER_BYTES
        self.header = memoryview(self._map)[: WORDS * 8].cast("Q")
        self.header[CLAIMED] = 1
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path_of(name))

    def _mapped(self) -> mmap.mmap:
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_size <= HEADER_BYTES:
            raise ValueError("it is no segment of this user's")
        mapped = mmap.mmap(self._fd, found.st_size)
        if int.from_bytes(mapped[MAGIC_AT * 8 : MAGIC_AT * 8 + 8], "little") != MAGIC:
            mapped.close()
            raise ValueError("it does not begin as one")
        return mapped

    def lease(self, generation: int, nbytes: int) -> memoryview:
        """The content of that generation, leased until the view and all views of it are collected. Raises Stale."""
        now, released = self.header[GENERATION], self.header[RELEASED]
        if generation != now or generation == released:
            state = "was given back" if generation <= released else "is not there"
            raise Stale(f"segment {self.name}: generation {generation} {state}; it holds {now}")
        if self.leased:
            raise Stale(f"segment {self.name}: generation {generation} is leased already")
        if nbytes > self.capacity:
            raise Stale(f"segment {self.name}: {nbytes} bytes, but it holds {self.capacity}")
        self.leased = generation
        exporter = _exporter(HEADER_BYTES + self.capacity).from_buffer(self._map)
        exporter.attachment, exporter.generation = self, generation
        return memoryview(exporter).cast("B")[HEADER_BYTES : HEADER_BYTES + nbytes]

    def owner_is_gone(self) -> bool:
        """Whether its owner has ended or let go of it."""
        return try_lock(self._fd)

    def close(self) -> None:
        """Unmap it. Only while nothing is leased."""
        self.header.release()
        self._map.close()
        os.close(self._fd)


@functools.cache
def _exporter(size: int) -> type[Any]:
    """A type whose objects are the memory of a lease: each view of it holds the object, whose end is the lease's."""

    def __del__(self: Any) -> None:
        attachment = self.attachment
        attachment.leased = 0
        attachment.header[RELEASED] = self.generation

    return type("Lease", (ctypes.c_ubyte * size,), {"__del__": __del__})


class Attachments:
    """All of one process."""

    def __init__(self) -> None:
        self._by_name: dict[str, Attachment] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._by_name)

    def lease(self, name: str, generation: int, nbytes: int) -> memoryview:
        """See `Attachment.lease`; name: as the peer gives it. Raises Stale."""
        if not NAME.fullmatch(name):
            raise Stale(f"{name[:80]!r} is not the name of a segment")
        with self._lock:
            attachment = self._by_name.get(name)
            if attachment is None:
                self._sweep()  # now and then at least: owners go
                if len(self._by_name) >= MAX_ATTACHED:
                    raise Stale(f"segment {name}: {MAX_ATTACHED} others are attached")
                attachment = self._by_name[name] = Attachment(name)
            return attachment.lease(generation, nbytes)

    def sweep(self) -> int:
        """Forget those whose owner is gone and of which nothing is leased; how many are left."""
        with self._lock:
            self._sweep()
            return len(self._by_name)

    def _sweep(self) -> None:
        for name, attachment in list(self._by_name.items()):
            if not attachment.leased and attachment.owner_is_gone():
                del self._by_name[name]
                attachment.close()


attachments = Attachments()
"""This process's: a segment is mapped once, whoever gets its contents."""
