"""How text is cut into pieces before BPE merges within each: by the name that a GGUF file has in tokenizer.ggml.pre.

The regular expressions are those of the models' own tokenizers (the tokenizer.json they were published with), which
llama.cpp's table by the same names agrees with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
NUMERIC = r"\p{N}"
"""Every character of a Unicode category N*: digits of any script, fractions, Roman numerals."""


class UnknownPreTokenizer(ValueError):
    """The vocabulary needs a way of cutting text that is not implemented."""


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a family of models cuts its text."""

    patterns: tuple[str, ...]
    """Applied one after another, each within the pieces of the one before; what matches is a piece, and what is
    between matches too."""
    ignore_merges: bool = False
    """A piece that is a token as it stands is that token, however merges would build it."""
    normalize: str | None = None
    """Unicode normalization form that text is brought to first."""
    add_bos: bool = False
    """Whether texts begin with the beginning-of-sequence token where the file does not say."""

    def build(self) -> pre_tokenizers.PreTokenizer:
        """It, as the tokenizers library has it: cut, then written in the byte alphabet."""
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def build_normalizer(self) -> normalizers.Normalizer | None:
        """The normalizer, if texts are normalized."""
        return normalizers.NFC() if self.normalize == "NFC" else None


_GPT2 = PreTokenizer((GPT2,))
_DIGITS = PreTokenizer((NUMERIC, GPT2))
_LLAMA3 = PreTokenizer((LLAMA3,), ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer((QWEN2,), normalize="NFC")

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "gpt-2": _GPT2, "gpt2": _GPT2,
    "smollm": _DIGITS, "starcoder": _DIGITS, "refact": _DIGITS, "command-r": _DIGITS,
    "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3,
    "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2,
}  # fmt: skip


def pre_tokenizer(name: str) -> PreTokenizer:
    """The one of this name. Raises UnknownPreTokenizer."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        raise UnknownPreTokenizer(f"unknown pre-tokenizer {name!r}; known are: {', '.join(sorted(PRE_TOKENIZERS))}")
    return found
