from __future__ import annotations

from pathlib import Path

from services.worker.fingerprint import fingerprint


def test_a_fingerprint_follows_contents_name_and_dtype(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    content = bytearray(range(256)) * 20_000
    path.write_bytes(content)
    first = fingerprint([path], "float32")
    assert first == fingerprint([path], "float32")
    assert first != fingerprint([path], "bfloat16")
    content[3] ^= 1
    path.write_bytes(content)
    changed_head = fingerprint([path], "float32")
    content[3] ^= 1
    content[-1] ^= 1
    path.write_bytes(content)
    changed_tail = fingerprint([path], "float32")
    path.write_bytes(content[:-1])
    shorter = fingerprint([path], "float32")
    assert len({first, changed_head, changed_tail, shorter}) == 4


def test_an_empty_file_has_a_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(b"")
    assert len(fingerprint([path], "float32")) == 32
