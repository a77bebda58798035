"""One request: its tokens, how far they are computed, and where it stands."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from services.protocols.sampling import SamplingParams


class Status(enum.Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    """It holds blocks, and a slot in the worker."""
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Request:
    """A sequence being generated. There are no phases: `computed` chases `length`, in prefill and decode alike."""

    request_id: str
    token_ids: list[int]
    """[T] the prompt, and behind it what was generated. A sampled token is in it once its step has been answered."""
    prompt_len: int
    sampling: SamplingParams
    priority: int
    """Lower is served first."""
    arrival_s: float
    """When it arrived, on the engine's clock, less what it waited elsewhere."""
    number: int
    """Counts the requests of an engine; breaks ties, so that no two have the same rank."""
    stop_ids: frozenset[int] = frozenset()
    """The tokens that end it, beside the model's own."""
    status: Status = Status.WAITING
    proven: bool = False
    """It has been given a token: what is wrong with a request most often shows before."""
    suspect_until: int = 0
    """A worker was lost while it computed this request's tokens up to here; 0 once that many were computed again."""
    isolate: bool = False
    """While it is a suspect, no other suspect runs beside it: a second loss is its own fault."""

    # Its stay in the worker, begun anew at each admission.
    computed: int = 0
    """Tokens whose KV the steps issued so far compute."""
    in_flight: int = 0
    """Samples issued and not answered: tokens that are in the worker's table, but not in `token_ids` yet."""
    prefill_len: int = 0
    """Tokens that were known when it was admitted."""
    blocks: list[int] = field(default_factory=list)
    """Block table."""
    slot: int = -1
    """Its place in the worker's table, -1 for none; `Steps` keeps it."""

    @property
    def rank(self) -> tuple[int, float, int]:
        """Order of service; the greatest is preempted first."""
        return self.priority, self.arrival_s, self.number

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def length(self) -> int:
        """Tokens that its sequence has in the worker once all issued steps have run."""
        return len(self.token_ids) + self.in_flight

    @property
    def pending(self) -> int:
        """Tokens to compute. 0 also when the last sample is in flight: nothing comes behind the last token."""
        if self.num_generated + self.in_flight >= self.sampling.max_tokens:
            return 0
        return self.length - self.computed

    @property
    def suspect(self) -> bool:
        """Whether it may be what ended a worker."""
        return self.suspect_until > 0

    def leave_worker(self) -> None:
        """Forget what is computed: it is to be computed again.

        `in_flight` stays: a step that samples for it may be under way, and its answer still counts.
        """
        self.computed = self.prefill_len = 0
        self.blocks = []

    def acquit(self) -> None:
        """It is no suspect."""
        self.suspect_until = 0
        self.isolate = False
