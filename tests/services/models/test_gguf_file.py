"""Reading GGUF files, against files written by the `gguf` library."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.models.gguf_file import TENSOR_TYPES, GgufFile
from services.models.load_error import (
    MalformedFile,
    MissingFile,
    MissingMetadata,
    ModelFileError,
    NotAModel,
    TruncatedFile,
    UnknownTensorType,
)

TOKENS = ["a", "ß", "Ġthe", "", "𝄞"]
MATRIX = np.arange(6 * 64, dtype=np.float32).reshape(6, 64)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.eps", 1e-5)
    writer.add_bool("yes", True)
    writer.add_int64("far", -(2**40))
    writer.add_string("name", "Grüße")
    writer.add_array("tokens", TOKENS)
    writer.add_array("types", [3, 1, -1, 7])
    writer.add_array("scores", [0.5, -1.5])
    writer.add_tensor("matrix", MATRIX)
    packed = gguf.quants.quantize(MATRIX, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_kind_of_metadata_is_read_as_it_was_written(written: Path) -> None:
    file = GgufFile.open(written)
    assert file.metadata("general.architecture") == "llama"
    assert file.metadata("llama.block_count") == 3
    assert file.metadata("llama.eps") == pytest.approx(1e-5)
    assert file.metadata("yes") is True
    assert file.metadata("far") == -(2**40)
    assert file.metadata("name") == "Grüße"
    assert file.metadata("tokens") == TOKENS
    assert file.metadata("types") == [3, 1, -1, 7]
    assert file.metadata("scores") == [0.5, -1.5]
    assert list(file.keys())[-1] == "scores"


def test_the_length_of_an_array_is_known_without_decoding_it(written: Path) -> None:
    file = GgufFile.open(written)
    assert file.metadata_length("tokens") == 5
    assert file.metadata_length("name") is None
    assert file.metadata_length("nothing") is None


def test_a_key_that_is_not_there_is_an_error_unless_a_default_is_given(written: Path) -> None:
    file = GgufFile.open(written)
    assert file.metadata("nothing", None) is None
    with pytest.raises(MissingMetadata, match=r"m\.gguf.*'nothing'"):
        file.metadata("nothing")


def test_tensors_have_rows_first_and_their_bytes_are_those_of_the_file(written: Path) -> None:
    file = GgufFile.open(written)
    matrix, packed = file.tensors["matrix"], file.tensors["packed"]
    assert (matrix.shape, matrix.type, matrix.n_bytes) == ((6, 64), "F32", 6 * 64 * 4)
    assert np.array_equal(np.frombuffer(file.tensor_bytes(matrix), np.float32).reshape(6, 64), MATRIX)
    assert (packed.shape, packed.type, packed.n_bytes) == ((6, 64), "Q8_0", 6 * 2 * 34)
    library = {t.name: int(t.data_offset) for t in gguf.GGUFReader(str(written)).tensors}
    assert {t.name: t.offset for t in file.tensors.values()} == library


def test_block_sizes_are_those_of_the_gguf_library() -> None:
    for number, (name, *sizes) in TENSOR_TYPES.items():
        assert gguf.GGMLQuantizationType(number).name == name
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == tuple(sizes)


def test_a_file_cut_off_anywhere_is_refused_with_its_path(written: Path, tmp_path: Path) -> None:
    whole = written.read_bytes()
    cut = tmp_path / "cut.gguf"
    last_byte = max(t.offset + t.n_bytes for t in GgufFile.open(written).tensors.values()) - 1
    for length in [*range(4, 400, 7), len(whole) // 2, last_byte]:
        cut.write_bytes(whole[:length])
        with pytest.raises(TruncatedFile, match=r"cut\.gguf: is truncated"):
            GgufFile.open(cut)


@pytest.mark.parametrize("content", [b"", b"GG", b"GGML" + bytes(100), b"PK\x03\x04" + bytes(100)])
def test_what_does_not_begin_with_the_magic_is_no_gguf_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(NotAModel, match="does not begin with 'GGUF'"):
        GgufFile.open(path)


@pytest.mark.parametrize(("version", "said"), [(1, "version 1"), (9, "version 9"), (0x03000000, "big-endian")])
def test_other_versions_are_refused_by_name(tmp_path: Path, version: int, said: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    with pytest.raises(NotAModel, match=said):
        GgufFile.open(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="No such file"):
        GgufFile.open(tmp_path / "none.gguf")
    with pytest.raises(MissingFile, match="directory"):
        GgufFile.open(tmp_path)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _file(path: Path, values: Sequence[bytes] = (), tensors: Sequence[bytes] = (), rest: int = 4096) -> Path:
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    path.write_bytes(header + b"".join(values) + b"".join(tensors) + bytes(rest))
    return path


def _tensor(name: str, dims: tuple[int, ...], kind: int) -> bytes:
    return _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, 0)


@pytest.mark.parametrize(
    ("values", "tensors", "error", "said"),
    [
        ([_string("k") + struct.pack("<I", 77)], [], MalformedFile, "unknown value type 77"),
        ([_string("k") + struct.pack("<IB", 0, 1)] * 2, [], MalformedFile, "'k' twice"),
        ([_string("k") + struct.pack("<IIQ", 9, 8, 2**60)], [], TruncatedFile, "within its header"),
        ([_string("k") + struct.pack("<IIQ", 9, 4, 2**62)], [], TruncatedFile, "within its header"),
        ([_string("k") + struct.pack("<IIQQQ", 9, 8, 2, 2**63 + 5, 0)], [], TruncatedFile, "within its header"),
        ([_string("general.alignment") + struct.pack("<II", 4, 0)], [], MalformedFile, "general.alignment is 0"),
        ([], [_tensor("t", (32,), 4242)], UnknownTensorType, "'t' is stored in the unknown ggml type 4242"),
        ([], [_tensor("t", (33,), 8)], MalformedFile, "rows of 33"),
        ([], [_tensor("t", (32,), 0)] * 2, MalformedFile, "two tensors named 't'"),
        ([], [_tensor("t", (1, 1, 1, 1, 1), 0)], MalformedFile, "5 dimensions"),
        ([], [_tensor("t", (2**40, 2**20), 0)], TruncatedFile, "'t' ends at byte"),
    ],
)
def test_a_header_that_lies_is_refused_with_what_it_says(
    tmp_path: Path, values: list[bytes], tensors: list[bytes], error: type[ModelFileError], said: str
) -> None:
    with pytest.raises(error, match=said):
        GgufFile.open(_file(tmp_path / "x.gguf", values, tensors))


def test_a_string_that_is_not_utf8_is_refused_when_it_is_read(tmp_path: Path) -> None:
    value = _string("k") + struct.pack("<IIQQ", 9, 8, 1, 2) + b"\xff\xfe"
    file = GgufFile.open(_file(tmp_path / "x.gguf", [value]))
    with pytest.raises(MalformedFile, match="element 0 of 'k' is not UTF-8"):
        file.metadata("k")


def test_arrays_of_arrays_are_read(tmp_path: Path) -> None:
    inner = struct.pack("<IQHH", 2, 2, 7, 8) + struct.pack("<IQ", 8, 1) + _string("x")
    file = GgufFile.open(_file(tmp_path / "x.gguf", [_string("k") + struct.pack("<IIQ", 9, 9, 2) + inner]))
    assert file.metadata("k") == [[7, 8], ["x"]]


@given(data=st.data())
def test_a_damaged_byte_never_ends_in_another_error_than_its_own(written: Path, data: st.DataObject) -> None:
    whole = bytearray(written.read_bytes())
    position = data.draw(st.integers(4, 500))
    whole[position] = data.draw(st.integers(0, 255))
    damaged = written.with_name("damaged.gguf")
    damaged.write_bytes(whole)
    try:
        file = GgufFile.open(damaged)
        values = [file.metadata(key) for key in list(file.keys())]
    except ModelFileError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert values
    assert refusal == "" or "damaged.gguf" in refusal
