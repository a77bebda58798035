"""Writes GGUF files that hold a vocabulary and no weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf

from services.models.gguf_file import GgufFile
from services.processor.byte_alphabet import BYTE_OF
from services.processor.gguf_tokenizer import CONTROL, NORMAL, UNUSED, USER_DEFINED

BYTES = list(BYTE_OF)
"""The alphabet; token id = place in it."""
TOKENS = [*BYTES, "th", "the", "<s>", "</s>", "<pad0>", "<tool>"]
TYPES = [*[NORMAL] * 258, CONTROL, CONTROL, UNUSED, USER_DEFINED]
MERGES = ["t h", "th e"]


def write_vocabulary(path: Path, **changed: Any) -> Path:
    """Write a small byte-level vocabulary. changed: metadata below `tokenizer`, with _ for the dot after `ggml`, as
    ggml_pre="gpt-2"; None leaves a key out."""
    metadata: dict[str, Any] = {
        "ggml_model": "gpt2", "ggml_pre": "gpt-2", "ggml_tokens": TOKENS, "ggml_token_type": TYPES,
        "ggml_merges": MERGES, "ggml_bos_token_id": TOKENS.index("<s>"), "ggml_eos_token_id": TOKENS.index("</s>"),
        **changed,
    }  # fmt: skip
    writer = gguf.GGUFWriter(str(path), "llama")
    for name, value in metadata.items():
        key = "tokenizer." + name.replace("ggml_", "ggml.", 1)
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def vocabulary(folder: Path, **changed: Any) -> GgufFile:
    """The file, opened."""
    return GgufFile.open(write_vocabulary(folder / "vocabulary.gguf", **changed))
