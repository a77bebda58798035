"""Tokens as bytes: the alphabets in which vocabularies write them down.

Byte-level BPE writes each byte as one printable character (GPT-2's `bytes_to_unicode`): printable Latin-1 bytes as
themselves, the others, in order, as U+0100 and up. SentencePiece writes text, with U+2581 for a space and <0xNN> for a
byte that has no token of its own.
"""

from __future__ import annotations

import re

_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]
BYTE_OF: dict[str, int] = {chr(byte): byte for byte in _SHOWN} | {
    chr(0x100 + number): byte for number, byte in enumerate(_HIDDEN)
}
"""Character of a byte-level token to its byte."""

_BYTE_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(token: str) -> bytes:
    """Bytes of a byte-level token. A token with a character outside of the alphabet is taken as plain text."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """Bytes of a SentencePiece token."""
    fallback = _BYTE_FALLBACK.fullmatch(token)
    if fallback:
        return bytes([int(fallback[1], 16)])
    return token.replace("\u2581", " ").encode()
