"""Tokenizers of Hugging Face folders, tiny ones that are written here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from services.processor.byte_alphabet import BYTE_OF
from services.processor.hf_tokenizer import read_hf_tokenizer, read_tokenizer_config, token_content
from services.processor.tokenizer import TokenizerError

CONFIG = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "pad_token": None}


def byte_level() -> tokenizers.Tokenizer:
    vocabulary = dict(BYTE_OF) | {"th": 256, "the": 257}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    made.add_tokens(["<tool>"])
    return made


def sentencepiece() -> tokenizers.Tokenizer:
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"\u2581": 256, "a": 257, "\u2581a": 258}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, [("\u2581", "a")], byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return made


def save(folder: Path, encoder: tokenizers.Tokenizer, config: Any = CONFIG) -> Path:
    encoder.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_byte_level_tokenizer_reads_what_it_writes(tmp_path: Path) -> None:
    tokenizer = read_hf_tokenizer(save(tmp_path, byte_level()), CONFIG)
    text = "the é½\U0001f30d<tool>"
    ids = tokenizer.encode(text)
    assert ids[0] == 257
    assert ids[-1] == 260
    assert tokenizer.decode(ids) == text
    assert [tokenizer.token_bytes(i) for i in tokenizer.encode("é")] == [b"\xc3", b"\xa9"]


def test_a_sentencepiece_tokenizer_writes_spaces_and_bytes_without_tokens(tmp_path: Path) -> None:
    tokenizer = read_hf_tokenizer(save(tmp_path, sentencepiece(), {}), {})
    ids = tokenizer.encode("a 字")
    assert ids[0] == 258
    assert tokenizer.decode(ids) == " a 字"
    assert [tokenizer.token_bytes(i) for i in ids[-3:]] == [bytes([b]) for b in "字".encode()]


def test_special_tokens_are_those_of_the_configuration(tmp_path: Path) -> None:
    tokenizer = read_hf_tokenizer(save(tmp_path, byte_level()), CONFIG)
    assert (tokenizer.ids.bos, tokenizer.ids.eos, tokenizer.ids.unknown, tokenizer.ids.padding) == (
        258,
        259,
        None,
        None,
    )
    assert tokenizer.special_ids == {258, 259}
    assert tokenizer.decode([258, 97, 260, 259], skip_special=True) == tokenizer.token_text(97) + "<tool>"


def test_a_beginning_is_added_where_the_post_processor_adds_one(tmp_path: Path) -> None:
    encoder = byte_level()
    assert read_hf_tokenizer(save(tmp_path, encoder), CONFIG).encode("the") == [257]
    encoder.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 258)])
    assert read_hf_tokenizer(save(tmp_path, encoder), CONFIG).encode("the") == [258, 257]
    silent = {**CONFIG, "add_bos_token": False}
    assert read_hf_tokenizer(save(tmp_path, encoder, silent), silent).encode("the") == [257]


def test_the_ends_of_a_post_processor_are_not_added(tmp_path: Path) -> None:
    encoder = byte_level()
    encoder.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 258), ("</s>", 259)]
    )
    assert read_hf_tokenizer(save(tmp_path, encoder), CONFIG).encode("the") == [258, 257]


def test_a_tokenizer_that_was_saved_cutting_and_padding_does_neither(tmp_path: Path) -> None:
    encoder = byte_level()
    encoder.enable_truncation(4)
    encoder.enable_padding(length=16)
    tokenizer = read_hf_tokenizer(save(tmp_path, encoder), CONFIG)
    assert len(tokenizer.encode("abcdef")) == 6


def test_a_folder_without_the_fast_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer.json: is not there. Save the tokenizer in the fast format"):
        read_hf_tokenizer(tmp_path, {})


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json: cannot be read"):
        read_hf_tokenizer(tmp_path, {})


def test_a_decoder_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    encoder = byte_level()
    encoder.decoder = decoders.WordPiece()
    with pytest.raises(TokenizerError, match="its decoder is WordPiece"):
        read_hf_tokenizer(save(tmp_path, encoder), CONFIG)
    encoder.decoder = None
    with pytest.raises(TokenizerError, match="its decoder is absent"):
        read_hf_tokenizer(save(tmp_path, encoder), CONFIG)


def test_no_configuration_is_an_empty_one_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    assert read_tokenizer_config(tmp_path) == {}
    path = tmp_path / "tokenizer_config.json"
    path.write_text("{")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json: cannot be read"):
        read_tokenizer_config(tmp_path)
    path.write_text("[]")
    with pytest.raises(TokenizerError, match="is a JSON list, not an object"):
        read_tokenizer_config(tmp_path)


@pytest.mark.parametrize(
    ("token", "expected"),
    [("<s>", "<s>"), ({"content": "<s>"}, "<s>"), ({}, None), (None, None), (7, None), (["<s>"], None)],
)
def test_a_token_is_text_or_an_object_with_its_content(token: Any, expected: str | None) -> None:
    assert token_content(token) == expected
