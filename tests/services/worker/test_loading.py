"""Loading from files, right and wrong ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import save_file

from services.models.load_error import (
    MalformedFile,
    MissingFile,
    MissingMetadata,
    MissingTensor,
    ModelFileError,
    NotAModel,
    TruncatedFile,
    UnknownArchitecture,
    UnknownTensorType,
)
from services.worker import loading
from services.worker.loading import load_model
from services.worker.memory import NotEnoughMemory

from .tiny_models import Tensors, Tiny, write_folder, write_gguf

STORAGES = ["F32", "F16", "Q8_0", "Q4_1"]


def stacked(tensors: Tensors, layer: int, names: list[str]) -> torch.Tensor:
    return torch.cat([tensors[f"model.layers.{layer}.{name}.weight"] for name in names])


@pytest.mark.parametrize("storage", STORAGES)
def test_a_gguf_file_gives_its_weights_with_q_and_k_back_in_order(
    tmp_path: Path, tiny: Tiny, tiny_tensors: Tensors, storage: str
) -> None:
    path = tmp_path / "m.gguf"
    seen = write_gguf(path, tiny, tiny_tensors, gguf.GGMLQuantizationType[storage])
    decoder = load_model(path, "float32", "cpu")
    for number, layer in enumerate(decoder.weights.layers):
        qkv = stacked(seen, number, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"])
        assert torch.equal(layer.qkv.weight_OI, qkv)
        assert torch.equal(layer.gate_up.weight_OI, stacked(seen, number, ["mlp.gate_proj", "mlp.up_proj"]))
        assert torch.equal(layer.down.weight_OI, stacked(seen, number, ["mlp.down_proj"]))
    assert torch.equal(decoder.weights.head_VD, seen["lm_head.weight"])
    assert decoder.config.eos_token_ids == (2, 5)


def test_qwen2_in_gguf_is_not_permuted_and_has_biases(tmp_path: Path) -> None:
    tiny = Tiny(architecture="Qwen2ForCausalLM")
    path = tmp_path / "m.gguf"
    seen = write_gguf(path, tiny, tiny.tensors(), gguf.GGMLQuantizationType.F32, architecture="qwen2")
    layer = load_model(path, "float32", "cpu").weights.layers[0]
    assert torch.equal(layer.qkv.weight_OI[:64], seen["model.layers.0.self_attn.q_proj.weight"])
    assert layer.qkv.bias_O is not None
    assert torch.equal(layer.qkv.bias_O[:64], seen["model.layers.0.self_attn.q_proj.bias"])
    assert layer.output.bias_O is None


@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_gives_its_weights_sharded_or_not(tmp_path: Path, tiny: Tiny, shards: int) -> None:
    tensors = write_folder(tmp_path, tiny, shards=shards)
    decoder = load_model(tmp_path, "float32", "cpu")
    assert torch.equal(decoder.weights.embedding_VD, tensors["model.embed_tokens.weight"])
    assert torch.equal(decoder.weights.layers[1].down.weight_OI, tensors["model.layers.1.mlp.down_proj.weight"])
    assert decoder.weights.n_bytes == sum(t.nbytes for t in tensors.values())


def test_a_tied_head_is_the_embedding_itself_even_where_the_file_repeats_it(tmp_path: Path) -> None:
    tiny = Tiny(tied=True)
    tensors = tiny.tensors()
    write_folder(tmp_path, tiny, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()})
    decoder = load_model(tmp_path, "float32", "cpu")
    assert decoder.weights.head_VD is decoder.weights.embedding_VD
    assert decoder.weights.n_bytes == sum(t.nbytes for t in tensors.values())


def test_half_precision_files_load_in_either_dtype(tmp_path: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    halves = {name: tensor.bfloat16() for name, tensor in tiny_tensors.items()}
    write_folder(tmp_path, tiny, halves)
    exact = load_model(tmp_path, "float32", "cpu").weights.embedding_VD
    assert torch.equal(exact, halves["model.embed_tokens.weight"].float())
    assert load_model(tmp_path, "bfloat16", "cpu").dtype == torch.bfloat16
    assert load_model(tmp_path, "auto", "cpu").dtype == torch.float32


def test_progress_counts_the_bytes_that_are_read_up_to_all_of_them(tmp_path: Path, tiny: Tiny) -> None:
    tensors = write_folder(tmp_path, tiny)
    calls: list[tuple[int, int]] = []
    load_model(tmp_path, "float32", "cpu", lambda done, total: calls.append((done, total)))
    total = sum(t.nbytes for t in tensors.values())
    assert {t for _, t in calls} == {total}
    assert len(calls) == len(tensors)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})
    assert calls[-1] == (total, total)


def test_eos_tokens_of_the_generation_config_come_before_those_of_the_config(tmp_path: Path, tiny: Tiny) -> None:
    write_folder(tmp_path, tiny)
    assert load_model(tmp_path, "float32", "cpu").config.eos_token_ids == (2,)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert load_model(tmp_path, "float32", "cpu").config.eos_token_ids == (7, 9)


def test_rope_parameters_are_read_as_either_version_writes_them(tmp_path: Path) -> None:
    extra = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    write_folder(tmp_path, Tiny(extra=extra))
    assert load_model(tmp_path, "float32", "cpu").config.rope_theta == 500.0


@pytest.mark.parametrize(
    ("extra", "error", "said"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, UnknownArchitecture, "'GPT2LMHeadModel'.*LlamaForCausalLM"),
        ({"architectures": None}, MissingMetadata, "'architectures'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, UnknownArchitecture, "'llama3'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, UnknownArchitecture, "'yarn'"),
        ({"sliding_window": 16}, UnknownArchitecture, "sliding window"),
        ({"hidden_act": "gelu"}, UnknownArchitecture, "'gelu'"),
        ({"partial_rotary_factor": 0.5}, UnknownArchitecture, "part of each head"),
        ({"quantization_config": {}}, UnknownArchitecture, "quantized"),
        ({"num_hidden_layers": None}, MissingMetadata, "'num_hidden_layers'"),
        ({"num_hidden_layers": -1}, MalformedFile, "num_layers is -1"),
        ({"hidden_size": "many"}, MalformedFile, "no model"),
        ({"num_attention_heads": 0, "head_dim": None}, MalformedFile, "no model"),
        ({"num_key_value_heads": 3}, MalformedFile, "multiple"),
        ({"rms_norm_eps": float("nan")}, MalformedFile, "rms_norm_eps"),
        ({"num_hidden_layers": 3}, MissingTensor, r"model\.layers\.2\.input_layernorm"),
        ({"num_hidden_layers": 1}, UnknownArchitecture, r"9 tensors .* no use for: model\.layers\.1"),
        ({"attention_bias": True}, MissingTensor, r"q_proj\.bias"),
        ({"vocab_size": 98}, MissingTensor, r"embed_tokens.*\[97, 64\].*\[98, 64\]"),
    ],
)
def test_a_folder_that_fits_no_model_says_what_is_wrong(
    tmp_path: Path, tiny_tensors: Tensors, extra: dict[str, Any], error: type[ModelFileError], said: str
) -> None:
    write_folder(tmp_path, Tiny(extra=extra), tiny_tensors)
    with pytest.raises(error, match=said) as caught:
        load_model(tmp_path, "float32", "cpu")
    assert str(tmp_path) in str(caught.value)


def test_files_that_are_missing_or_broken_are_each_named(tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(MissingFile, match=r"nowhere\.gguf: there is no such"):
        load_model(tmp_path / "nowhere.gguf")
    with pytest.raises(NotAModel, match=r"without config\.json"):
        load_model(tmp_path)
    folder = tmp_path / "copy"
    shutil.copytree(tiny_folder, folder)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        weights.write_bytes(whole[:length])
        with pytest.raises(TruncatedFile, match=r"model\.safetensors: is truncated"):
            load_model(folder)
    weights.write_bytes(whole[:8] + b"!" + whole[9:])
    with pytest.raises(MalformedFile, match="header"):
        load_model(folder)
    weights.unlink()
    with pytest.raises(MissingFile, match=r"model\.safetensors: .*index"):
        load_model(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    with pytest.raises(MissingFile, match="gone"):
        load_model(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x.safetensors"}}))
    with pytest.raises(MalformedFile, match="outside"):
        load_model(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(NotAModel, match=r"config\.json: is not JSON"):
        load_model(folder)


def test_a_tensor_of_integers_is_refused(tmp_path: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    write_folder(tmp_path, tiny)
    save_file(tiny_tensors | {"model.norm.weight": torch.ones(64, dtype=torch.int32)}, tmp_path / "model.safetensors")
    with pytest.raises(UnknownTensorType, match=r"'model\.norm\.weight' is stored as I32"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "error", "said"),
    [
        ({"general.architecture": "gpt2"}, UnknownArchitecture, "'gpt2'.*llama, qwen2"),
        ({"llama.expert_count": 8}, UnknownArchitecture, "mixture of experts"),
        ({"llama.rope.scaling.type": "linear"}, UnknownArchitecture, "'linear'"),
        ({"llama.attention.sliding_window": 8}, UnknownArchitecture, "sliding window"),
        ({"llama.rope.dimension_count": 8}, UnknownArchitecture, "part of each head"),
        ({"llama.attention.head_count": 0}, MalformedFile, "no model"),
        ({"llama.block_count": 3}, MissingTensor, r"blk\.2\.attn_norm\.weight"),
    ],
)
def test_a_gguf_file_that_fits_no_model_says_what_is_wrong(
    tmp_path: Path, tiny: Tiny, tiny_tensors: Tensors, metadata: dict[str, Any], error: type[ModelFileError], said: str
) -> None:
    path = tmp_path / "m.gguf"
    write_with_metadata(path, tiny, tiny_tensors, metadata)
    with pytest.raises(error, match=said) as caught:
        load_model(path, "float32", "cpu")
    assert str(path) in str(caught.value)


def write_with_metadata(path: Path, tiny: Tiny, tensors: Tensors, metadata: dict[str, Any]) -> None:
    """Write a GGUF file whose metadata is changed behind the writer's back, which refuses contradictions."""
    original = gguf.GGUFWriter.write_header_to_file

    def patched(writer: gguf.GGUFWriter, *args: Any, **kwargs: Any) -> None:
        for key, value in metadata.items():
            kind = gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.UINT32
            writer.kv_data[0][key] = gguf.GGUFValue(value=value, type=kind)
        original(writer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "write_header_to_file", patched)
        write_gguf(path, tiny, tensors, gguf.GGMLQuantizationType.F32)


def test_a_gguf_tensor_in_a_format_without_code_is_named(tmp_path: Path, tiny: Tiny, tiny_tensors: Tensors) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, tiny, tiny_tensors, gguf.GGMLQuantizationType.F32)
    content = bytearray(path.read_bytes())
    # In the tensor table the type stands behind name, number of dimensions and the two dimensions.
    at = content.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 16
    content[at : at + 4] = (26).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(UnknownTensorType, match=r"'token_embd\.weight' is stored as I32"):
        load_model(path)


def test_weights_that_do_not_fit_are_refused_with_the_numbers(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "available_bytes", lambda: 1000)
    with pytest.raises(NotEnoughMemory, match=r"weights need .* kB .*1\.00 kB available"):
        load_model(tiny_folder, "float32", "cpu")


@pytest.mark.parametrize(("dtype", "device", "said"), [("float8", "cpu", "float8"), ("auto", "cuda:0", "no GPU")])
def test_a_dtype_or_device_that_there_is_not_is_refused(
    tiny_folder: Path, dtype: str, device: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=said):
        load_model(tiny_folder, dtype, device)


def test_load_model_needs_nothing_of_the_toolkit(tiny_folder: Path) -> None:
    program = (
        "import sys; from services.worker.loading import load_model; "
        f"load_model({str(tiny_folder)!r}, 'float32', 'cpu'); "
        "print([m for m in ('zmqengine', 'zmq', 'msgspec', 'gguf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
