"""Loading a decoder's weights: `load_model`. Needs torch and the model's files, and nothing of the rest of the project.

The tensors are read one after the other from a memory-mapped file, dequantized into their place. Projections that share
an input are stacked, each read into its rows. GGUF keeps the rows of Llama's Q and K permuted (the two numbers of a
rotated pair are neighbours); they are put back into halves as they are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from services.models.gguf_file import GgufFile
from services.models.load_error import MissingFile, MissingTensor, NotAModel, UnknownArchitecture

from . import gguf_model, hf_config
from .decoder import Decoder, Layer, Projection, Weights
from .decoder_config import DecoderConfig
from .memory import NotEnoughMemory, available_bytes, size_text
from .tensor_source import GgufTensors, SafetensorsFolder, TensorSource
from .weight_names import WeightNames

Progress = Callable[[int, int], None]
"""Called with bytes read so far, and bytes to read in all."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_device(name: str) -> torch.device:
    """auto: a GPU where there is one. Raises ValueError for one that is not there."""
    available = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if available else "cpu")
    if name.startswith("cuda") and not available:
        raise ValueError(f"device is {name!r}, but torch {torch.__version__} finds no GPU here. Use 'cpu' or 'auto'")
    return torch.device(name)


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 on a GPU, and float32 on a CPU, where bfloat16 is the slower one."""
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise ValueError(f"dtype is {name!r}; use one of: auto, {', '.join(DTYPES)}")
    return DTYPES[name]


def load_model(
    path: str | os.PathLike[str], dtype: str = "auto", device: str = "auto", progress: Progress | None = None
) -> Decoder:
    """Load a .gguf file, or a Hugging Face folder.

    Raises a subclass of services.models.load_error.ModelFileError, which names the file and the reason;
    NotEnoughMemory; ValueError for a dtype or device that there is not.
    """
    on_device = resolve_device(device)
    in_dtype = resolve_dtype(dtype, on_device)
    location = Path(path)
    if location.is_dir():
        if not (location / "config.json").is_file():
            raise NotAModel(location, "is a folder without config.json, so it is no Hugging Face model")
        config = hf_config.read_config(location)
        folder = SafetensorsFolder(location)
        try:
            return _Loader(config, folder, hf_config.NAMES, in_dtype, on_device, progress).load()
        finally:
            folder.close()
    if not location.exists():
        raise MissingFile(location, "there is no such file or folder")
    file = GgufFile.open(location)
    config, family = gguf_model.read_config(file)
    return _Loader(
        config, GgufTensors(file), gguf_model.NAMES, in_dtype, on_device, progress,
        pairs_adjacent=family.rotary_pairs_adjacent,
    ).load()  # fmt: skip


class _Loader:
    """Reads a decoder's tensors from a source, once."""

    def __init__(
        self, config: DecoderConfig, source: TensorSource, names: WeightNames, dtype: torch.dtype,
        device: torch.device, progress: Progress | None, *, pairs_adjacent: bool = False,
    ) -> None:  # fmt: skip
        """pairs_adjacent: the source's Q and K have the two numbers of a rotated pair beside each other."""
        self._pairs_adjacent = pairs_adjacent
        self._config = config
        self._source = source
        self._names = names
        self._dtype, self._device = dtype, device
        self._progress = progress
        self._unread = set(source.names())
        self._bytes_total = sum(source.n_bytes(name) for name in self._unread)
        self._bytes_read = 0

    def load(self) -> Decoder:
        """Raises NotEnoughMemory, MissingTensor, UnknownTensorType, UnknownArchitecture (tensors without a use)."""
        self._check_memory()
        config, names = self._config, self._names
        hidden, vocab = config.hidden_size, config.vocab_size
        embedding = self._read(names.embedding, (vocab, hidden))
        layers = [self._layer(number) for number in range(config.num_layers)]
        final_norm = self._read(names.final_norm, (hidden,))
        if config.tied_head:
            self._skip(names.head)
        head = embedding if config.tied_head else self._read(names.head, (vocab, hidden))
        for name in [n for n in self._unread if n.endswith("rotary_emb.inv_freq")]:
            self._skip(name)
        if self._unread:
            some = ", ".join(sorted(self._unread)[:3])
            raise UnknownArchitecture(
                self._source.path,
                f"has {len(self._unread)} tensors that the architecture {config.architecture!r} has no use for: {some}",
            )
        return Decoder(config, Weights(embedding, layers, final_norm, head))

    def _check_memory(self) -> None:
        needed = self._config.num_weights * self._dtype.itemsize
        on_gpu = self._device.type == "cuda"
        available = torch.cuda.mem_get_info(self._device)[0] if on_gpu else available_bytes()
        if needed > available:
            raise NotEnoughMemory(
                f"{self._source.path}: its weights need {size_text(needed)} in {self._dtype}, but {self._device} has "
                f"{size_text(available)} available"
            )

    def _layer(self, number: int) -> Layer:
        config, names = self._config, self._names
        hidden, ffn = config.hidden_size, config.ffn_size

        def at(template: str) -> str:
            return template.format(layer=number)

        qkv = [(at(names.q), config.q_size), (at(names.k), config.kv_size), (at(names.v), config.kv_size)]
        heads = (config.num_heads, config.num_kv_heads, None) if self._pairs_adjacent else (None, None, None)
        return Layer(
            attention_norm_D=self._read(at(names.attention_norm), (hidden,)),
            qkv=self._projection(qkv, hidden, config.qkv_bias, heads),
            output=self._projection([(at(names.output), hidden)], config.q_size, config.output_bias),
            ffn_norm_D=self._read(at(names.ffn_norm), (hidden,)),
            gate_up=self._projection([(at(names.gate), ffn), (at(names.up), ffn)], hidden, config.mlp_bias),
            down=self._projection([(at(names.down), hidden)], ffn, config.mlp_bias),
        )

    def _projection(
        self, parts: Sequence[tuple[str, int]], inputs: int, has_bias: bool,
        permuted_heads: Sequence[int | None] | None = None,
    ) -> Projection:  # fmt: skip
        """Read parts (name, outputs) into one stacked projection; of a part with a number of heads, un-permute rows."""
        outputs = sum(size for _, size in parts)
        weight = self._empty((outputs, inputs))
        bias = self._empty((outputs,)) if has_bias else None
        begin = 0
        for (name, size), heads in zip(parts, permuted_heads or [None] * len(parts), strict=True):
            self._read_into(name + ".weight", weight[begin : begin + size], heads)
            if bias is not None:
                self._read_into(name + ".bias", bias[begin : begin + size], heads)
            begin += size
        return Projection(weight, bias)

    def _empty(self, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.empty(shape, dtype=self._dtype, device=self._device)

    def _read(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        out = self._empty(shape)
        self._read_into(name, out)
        return out

    def _read_into(self, name: str, out: torch.Tensor, permuted_heads: int | None = None) -> None:
        if name not in self._unread:
            raise MissingTensor(self._source.path, f"has no tensor {name!r}")
        found = self._source.shape(name)
        if found != tuple(out.shape):
            raise MissingTensor(
                self._source.path, f"tensor {name!r} has the shape {list(found)}, but the model needs {list(out.shape)}"
            )
        if permuted_heads is not None:
            # Row (head, pair, half) of the source is row (head, half, pair) of ours.
            out = torch.unflatten(out, 0, (permuted_heads, 2, -1)).transpose(1, 2)
        self._source.read_into(name, out)
        self._skip(name)

    def _skip(self, name: str) -> None:
        """Count a tensor as done with."""
        if name in self._unread:
            self._unread.remove(name)
            self._bytes_read += self._source.n_bytes(name)
            if self._progress is not None:
                self._progress(self._bytes_read, self._bytes_total)
