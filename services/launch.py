"""The table `llm`: an engine's services (`launch_order`) with the options of each.

A row's process is spawned and imports at once; what it comes after decides when it may load.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Literal

from msgspec import Meta

from zmqengine import Config
from zmqengine.errors import ConfigError
from zmqengine.table import Ready, Row, Swap, Table

from .launch_order import Layout, Place, launch_order


class LlmOptions(Config):
    """Options of the table, as given with ``--set key=value``."""

    model: str = "smollm2"
    """A registered name, a .gguf file, or a Hugging Face folder."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the weights are computed in; float32 is exact."""
    num_kv_blocks: Annotated[int, Meta(ge=1)] | None = None
    """Blocks of KV cache; absent: the worker measures how many there is room for."""
    prefix_cache: bool = False
    """Keep the KV of prompts for later ones that begin alike."""
    served_name: str | None = None
    """Name that clients ask for; absent: the registered name, or that of the file or folder."""


def llm(options: LlmOptions) -> Table:
    """The engine's launch table. Raises ConfigError for what needs a service that there is not."""
    layout = Layout(profile=options.num_kv_blocks is None, mixed=True, prefix_cache=options.prefix_cache)
    given: dict[str, dict[str, Any]] = {
        "worker": _given(model=options.model, dtype=options.dtype, num_kv_blocks=options.num_kv_blocks),
        "processor": _given(model=options.model, served_name=options.served_name),
    }
    return Table.of("llm", [_row(place, given.get(place.service, {})) for place in launch_order(layout)])


def _row(place: Place, options: dict[str, Any]) -> Row:
    name = place.service
    if find_spec(f"services.{name}") is None:
        raise ConfigError(f"table llm: the options ask for the service {name!r}, which this version does not have")
    # Weights of any size load within progress_timeout of each other; in all, an hour.
    ready = Ready(timeout=3600.0, progress_timeout=120.0) if name == "worker" else Ready()
    return Row(
        name=name, impl=f"services.{name}.service:{name.capitalize()}", protocol=f"{name}/1", after=list(place.after),
        replicas=place.replicas, ready=ready, swap=_SWAPS.get(name, Swap()), options=options,
    )  # fmt: skip


_SWAPS = {
    # Two engines would reset each other's worker: the processor hands an engine's requests to the next one.
    "engine": Swap(mode="stop_first"),
    # Two servers cannot listen on one port.
    "api": Swap(mode="stop_first"),
}


def _given(**options: Any) -> dict[str, Any]:
    """Only what is set: what is not is for the service's own default to say."""
    return {key: value for key, value in options.items() if value is not None}
