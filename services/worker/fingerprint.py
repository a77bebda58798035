"""A model's identity: equal fingerprints compute equal keys and values. Without torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

_HEAD_BYTES = 1024 * 1024
_SAMPLE_BYTES = 4096
_SAMPLES = 256


def fingerprint(files: Iterable[Path], dtype: str) -> str:
    """Hex digest over the files' names, sizes and samples of their bytes, and the dtype.

    A megabyte at the beginning (the header) and 256 pages at even distances stand for the whole: reading a large model
    twice at each start would cost minutes. Training, merging or requantizing changes every tensor, and so each sample.
    """
    digest = hashlib.blake2b(dtype.encode(), digest_size=16)
    for path in files:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"\0{path.name}\0{size}\0".encode())
            digest.update(file.read(_HEAD_BYTES))
            for index in range(_SAMPLES):
                file.seek(max(0, size - _SAMPLE_BYTES) * index // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
