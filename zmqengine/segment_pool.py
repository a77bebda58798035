"""The segments of shared memory that this process owns: filled again and again, those of one peer for that peer alone."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref

from .segment import NoRoom, Segment, unlink_dead

MOST_BYTES = "ZMQENGINE_SHARED_MEMORY"
"""Variable: the bytes of shared memory that this process owns at most; 0: none, buffers travel in frames alone."""
DEFAULT_MOST_BYTES = 1024 * 1024 * 1024
GRAIN = 1024 * 1024
"""Capacities are multiples of it, and of an eighth of their size: contents of nearly the same size share segments."""
CLAIM_S = 0.5
"""How long a process that ends waits for its peers to attach to what it sent last."""


def capacity_for(nbytes: int) -> int:
    """Of the segment that is made for a content of so many bytes."""
    grain = max(GRAIN, 1 << max(0, nbytes.bit_length() - 4))
    return -(-nbytes // grain) * grain


class PeerSegments:
    """The segments whose contents one peer is lent. It belongs to whoever sends to that peer, and ends with it."""

    def __init__(self, pool: SegmentPool) -> None:
        self._pool = pool
        self._segments: list[Segment] = []
        """Those used last come last."""

    def lend(self, content: memoryview) -> tuple[str, int] | None:
        """Copy a content into a segment and lend it to the peer; the segment's name and the generation. None: there
        is no room, it has to travel otherwise."""
        nbytes = content.nbytes
        with self._pool.lock:
            fitting = [s for s in self._segments if s.capacity >= nbytes and s.capacity <= 4 * nbytes and s.free]
            segment = min(fitting, key=lambda s: s.capacity) if fitting else self._pool.make(capacity_for(nbytes))
            if segment is None:
                return None
            if fitting:
                self._segments.remove(segment)
            self._segments.append(segment)
        return segment.name, segment.lend(content)

    def drop_free(self, wanted: int) -> int:
        """For the pool: let go of segments that are not lent, until so many bytes are freed; how many were."""
        freed = 0
        for segment in [s for s in self._segments if s.generation and s.free]:
            if freed >= wanted:
                break
            self._segments.remove(segment)
            freed += segment.capacity
            segment.close()
        return freed

    @property
    def unclaimed(self) -> bool:
        """Whether the peer has still to attach to one."""
        return any(not segment.claimed for segment in self._segments)

    def close(self) -> None:
        """The connection to the peer has ended: so do its leases. What it has still mapped stays as it is."""
        with self._pool.lock:
            segments, self._segments = self._segments, []
            self._pool.bytes_owned -= sum(segment.capacity for segment in segments)
            for segment in segments:
                segment.close()

    __del__ = close


class SegmentPool:
    """All of one process. Any thread."""

    def __init__(self, run: str, incarnation: str, most_bytes: int) -> None:
        """run, incarnation: in the names of its segments. most_bytes: how many they take at most."""
        # Reentrant: a collected PeerSegments closes itself on whichever thread is in here.
        self.lock = threading.RLock()
        self.bytes_owned = 0
        self._run, self._incarnation = run, incarnation
        self._most_bytes = most_bytes
        self._peers: weakref.WeakSet[PeerSegments] = weakref.WeakSet()
        self._closed = False
        if most_bytes:
            unlink_dead()  # what processes that were killed could not

    def peer(self) -> PeerSegments | None:
        """The segments for another peer; None: shared memory is not to be used."""
        if not self._most_bytes or self._closed:
            return None
        made = PeerSegments(self)
        with self.lock:
            self._peers.add(made)
        return made

    def make(self, capacity: int) -> Segment | None:
        """For a PeerSegments, which holds the lock: another segment, in the place of some that are not lent if need
        be; None: there is no room."""
        over = self.bytes_owned + capacity - self._most_bytes
        if over > 0:
            for peer in list(self._peers):
                if over > 0:
                    freed = peer.drop_free(over)
                    self.bytes_owned -= freed
                    over -= freed
        if over > 0 or self._closed:
            return None
        try:
            made = Segment(self._run, self._incarnation, capacity)
        except NoRoom:
            return None  # a small /dev/shm is no fault: `zmqengine doctor` tells of it
        self.bytes_owned += capacity
        return made

    def close(self) -> None:
        """This process ends: what it sent last is attached to by then, or is not to be had any more."""
        with self.lock:
            self._closed = True
            peers = list(self._peers)
        until = time.monotonic() + CLAIM_S
        pause = threading.Event()
        while any(peer.unclaimed for peer in peers) and time.monotonic() < until:
            pause.wait(0.005)  # nothing tells of a store in shared memory
        for peer in peers:
            peer.close()


class _Own:
    """This process's pool; a forked child has its own."""

    def __init__(self) -> None:
        self.run, self.incarnation = "", ""
        self._pool: SegmentPool | None = None
        self._pid = 0

    def pool(self) -> SegmentPool:
        if self._pool is None or self._pid != os.getpid():
            most = int(os.environ.get(MOST_BYTES, DEFAULT_MOST_BYTES))
            self._pool, self._pid = SegmentPool(self.run, self.incarnation or os.urandom(6).hex(), most), os.getpid()
            atexit.register(self._close, self._pool, self._pid)
        return self._pool

    @staticmethod
    def _close(pool: SegmentPool, pid: int) -> None:
        if os.getpid() == pid:
            pool.close()


_own = _Own()


def own_pool() -> SegmentPool:
    """The pool of this process."""
    return _own.pool()


def name_segments_of(run: str, incarnation: str) -> None:
    """Names of segments that this process makes say from now on that they are of this incarnation."""
    _own.run, _own.incarnation = run, incarnation
