"""A tokenizer: text to token ids, and each token id to its bytes. Built by `gguf_tokenizer` or `hf_tokenizer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import tokenizers

from .detokenizer import Detokenizer


class TokenizerError(ValueError):
    """A text that cannot be tokenized, or files that no tokenizer can be made of."""


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the tokens with a part of their own; None where the model has none."""

    bos: int | None = None
    eos: int | None = None
    unknown: int | None = None
    padding: int | None = None


class Tokenizer:
    """Text to ids and back. Thread-safe: encoding may run beside the loop."""

    def __init__(
        self,
        encoder: tokenizers.Tokenizer,
        to_bytes: Callable[[str], bytes],
        *,
        literal: dict[int, str],
        special: frozenset[int],
        ids: SpecialIds,
        add_bos: bool,
    ) -> None:
        """to_bytes: bytes of a token of the vocabulary proper.

        literal: added tokens, which stand for their own text. special: those of them that are control tokens.
        """
        self._encoder = encoder
        self._to_bytes = to_bytes
        self._literal = literal
        self.special_ids = special
        self.ids = ids
        self.add_bos = add_bos and ids.bos is not None
        self.vocab_size: int = encoder.get_vocab_size(with_added_tokens=True)
        self._bytes: dict[int, bytes] = {}
        self._longest: int | None = None

    def encode(self, text: str, *, add_bos: bool = True) -> list[int]:
        """Token ids of a text, [T]. Text that spells a special token becomes that token, as with transformers.

        add_bos: put the beginning-of-sequence token first, for a model that wants it; a text that begins with it
        already gets no second one. Raises TokenizerError for text that is no Unicode (lone surrogates).
        """
        try:
            ids: list[int] = self._encoder.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise TokenizerError(f"the text is not valid Unicode: {error}") from None
        bos = self.ids.bos
        if self.add_bos and add_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def at_least(self, text: str) -> int:
        """A lower bound of the number of tokens of a text, without tokenizing it; 0 where there is none.

        No token is longer than the longest. Where a normalizer may shorten the text, or a token takes the spaces
        around it, nothing is said.
        """
        longest = self._longest_token()
        return len(text) // longest if longest else 0

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text, special ones included; none for an id without a token."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._read_bytes(token_id)
        return found

    def is_special(self, token_id: int) -> bool:
        """Whether it is a control token, which a reader of the text is not to see."""
        return token_id in self.special_ids

    def join(self, token_ids: Iterable[int], *, skip_special: bool) -> bytes:
        """Bytes of a sequence of tokens."""
        return b"".join(self.token_bytes(i) for i in token_ids if not (skip_special and i in self.special_ids))

    def decode(self, token_ids: Sequence[int], *, skip_special: bool = False) -> str:
        """Text of a sequence of tokens; bytes that are no UTF-8 become U+FFFD."""
        return self.join(token_ids, skip_special=skip_special).decode("utf-8", "replace")

    def token_text(self, token_id: int | None) -> str:
        """Text of one token, empty for None; where it is part of a character, with U+FFFD."""
        return "" if token_id is None else self.token_bytes(token_id).decode("utf-8", "replace")

    def detokenizer(self, prompt_ids: Sequence[int] = (), *, skip_special: bool = True) -> Detokenizer:
        """An incremental detokenizer for what is generated behind a prompt."""
        # A character has at most 4 bytes, so its beginning lies within the last ones.
        tail = b""
        for token_id in reversed(prompt_ids):
            tail = self.join((token_id,), skip_special=skip_special) + tail
            if len(tail) >= 4:
                break
        return Detokenizer(tail)

    def _read_bytes(self, token_id: int) -> bytes:
        if token_id in self._literal:
            return self._literal[token_id].encode()
        token = self._encoder.id_to_token(token_id) if 0 <= token_id < 2**32 else None
        return b"" if token is None else self._to_bytes(token)

    def _longest_token(self) -> int:
        """Characters of the longest token; 0 where tokens may stand for text of any length."""
        if self._longest is None:
            added = self._encoder.get_added_tokens_decoder().values()
            if self._encoder.normalizer is not None or any(token.lstrip or token.rstrip for token in added):
                self._longest = 0
            else:
                # In every alphabet a token is written with at least as many characters as it has.
                self._longest = max(1, *map(len, self._encoder.get_vocab(with_added_tokens=True)))
        return self._longest
