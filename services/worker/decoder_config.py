"""What a decoder looks like: its dimensions and parts, whichever file they were read from. Without torch."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A pre-norm decoder with RMSNorm, rotary embedding, grouped-query attention and SwiGLU.

    Families (Llama, Mistral, Qwen2) differ in these values alone. Raises ValueError for values that fit no model.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    max_context: int
    """Positions that the model was made for."""
    rms_norm_eps: float
    rope_theta: float
    tied_head: bool
    """The output head is the embedding."""
    qkv_bias: bool = False
    output_bias: bool = False
    """On the attention's output projection."""
    mlp_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{field.name} is {value!r}, not a positive number")
            if field.type == "float" and (not isinstance(value, int | float) or not 0 < value < float("inf")):
                raise ValueError(f"{field.name} is {value!r}, not a positive number")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd, so it cannot be rotated in pairs")

    @property
    def num_weights(self) -> int:
        """Numbers in all matrices and norms; biases are not worth counting."""
        attention = 2 * self.hidden_size * (self.q_size + self.kv_size)
        layer = attention + self.hidden_size * (3 * self.ffn_size + 2)
        return self.num_layers * layer + self.hidden_size * (self.vocab_size * (1 if self.tied_head else 2) + 1)

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim
