"""The table `llm`: which services an engine consists of, and in which order they start, computed from its options.

Order: the scheduler; the common engine and its processor; the worker; the api. A row's process is spawned and imports
at once; what it comes after decides when it may load. The engine is READY without its worker (it waits for it), so
nothing but the api has to wait for the weights.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from zmqengine import Config
from zmqengine.table import Ready, Row, Table


class LlmOptions(Config):
    """Options of the table, as given with ``--set key=value``."""

    model: str = "smollm2"
    """A registered name, a .gguf file, or a Hugging Face folder."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the weights are computed in; float32 is exact."""
    num_kv_blocks: Annotated[int, Meta(ge=1)] | None = None
    """Blocks of KV cache; absent: the worker measures how many there is room for."""
    served_name: str | None = None
    """Name that clients ask for; absent: the registered name, or that of the file or folder."""


def llm(options: LlmOptions) -> Table:
    """The engine's launch table."""
    worker = _given(model=options.model, dtype=options.dtype, num_kv_blocks=options.num_kv_blocks)
    processor = _given(model=options.model, served_name=options.served_name)
    rows = [
        _row("scheduler", []),
        _row("engine", ["scheduler"]),
        _row("processor", ["engine"], processor),
        # Weights of any size load within progress_timeout of each other; in all, an hour.
        _row("worker", ["engine"], worker, Ready(timeout=3600.0, progress_timeout=120.0)),
        _row("api", ["processor", "worker"]),
    ]
    return Table.of("llm", rows)


def _row(name: str, after: list[str], options: dict[str, Any] | None = None, ready: Ready | None = None) -> Row:
    return Row(
        name=name, impl=f"services.{name}.service:{name.capitalize()}", protocol=f"{name}/1", after=after,
        ready=ready or Ready(), options=options or {},
    )  # fmt: skip


def _given(**options: Any) -> dict[str, Any]:
    """Only what is set: what is not is for the service's own default to say."""
    return {key: value for key, value in options.items() if value is not None}
