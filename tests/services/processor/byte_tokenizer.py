"""A tokenizer without a model: token id = byte, and a few tokens more."""

from __future__ import annotations

import tokenizers
from tokenizers import models

from services.processor.byte_alphabet import BYTE_OF, byte_level_bytes
from services.processor.pre_tokenizer import pre_tokenizer
from services.processor.tokenizer import SpecialIds, Tokenizer

END = 256
"""A control token: the end of a sequence."""
TOOL = 257
"""An added token that is text."""
UNTOLD = 258
"""An id without a token."""


def byte_tokenizer(*, add_bos: bool = False) -> Tokenizer:
    """A tokenizer whose token ids are the text's bytes; `<end>` and `<tool>` are tokens of their own."""
    vocabulary = dict(BYTE_OF)
    encoder = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    encoder.pre_tokenizer = pre_tokenizer("gpt-2").build()
    encoder.add_tokens(["<end>", "<tool>"])
    return Tokenizer(
        encoder, byte_level_bytes, literal={END: "<end>", TOOL: "<tool>"}, special=frozenset({END}),
        ids=SpecialIds(bos=END, eos=END), add_bos=add_bos,
    )  # fmt: skip
