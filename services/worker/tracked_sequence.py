"""What the worker keeps of the sequence in a slot. Without torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.protocols.sampling import SamplingParams


@dataclass(slots=True)
class TrackedSequence:
    """A sequence: its tokens, how far they are computed, and where their keys and values are."""

    request_id: str
    token_ids: list[int]
    """[T] prompt, then generated."""
    prompt_len: int
    params: SamplingParams
    seed: int
    """The request's, or one of its own."""
    blocks: list[int] = field(default_factory=list)
    """Block table."""
    computed: int = 0
    """Tokens whose keys and values are in the blocks."""
    started: bool = False
    """It has been advanced. Until then its first `computed` tokens may come from elsewhere (a prefix hit)."""

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.prompt_len
