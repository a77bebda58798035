"""Random numbers that belong to a position of a sequence, and to nothing else."""

from __future__ import annotations

import hashlib
import struct

_SEED_MASK = 2**64 - 1


def uniform(seed: int, position: int) -> float:
    """A number in (0, 1), the same for the same seed (modulo 2^64) and position, whatever was drawn before.

    There is no generator whose state would have to survive: a sequence that is resumed elsewhere, or that shares its
    batch with others, goes on with the same numbers. 53 bits of a keyed hash are its random bits.
    """
    key = struct.pack("<Q", seed & _SEED_MASK)
    digest = hashlib.blake2b(struct.pack("<Q", position), digest_size=8, key=key).digest()
    return ((int.from_bytes(digest, "little") >> 11) + 0.5) / 2**53
