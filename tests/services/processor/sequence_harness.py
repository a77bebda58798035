"""A sequence between a fake scheduler and a fake engine."""

from __future__ import annotations

from services.processor.completion import Completion
from services.processor.sequence import Ask, RetryPolicy, Sequence
from services.processor.stops import StopAutomaton
from services.protocols.processor import TextDelta
from services.protocols.sampling import SamplingParams

from .byte_tokenizer import byte_tokenizer
from .fake_ports import FakePorts, Generating

TOKENIZER = byte_tokenizer()
POLICY = RetryPolicy(attempts=3, first_s=0.1, most_s=0.25)


class Harness:
    """A sequence with everything around it."""

    def __init__(self, *stop: str, max_tokens: int = 8, at_once: bool = False) -> None:
        self.ports = FakePorts(at_once=at_once)
        self.deltas: list[TextDelta] = []
        self.failures: list[BaseException] = []
        ask = Ask("r/0", [*b"prompt"], SamplingParams(max_tokens=max_tokens), -1, "tenant", "processor", "inc-1")
        self.completion = Completion(TOKENIZER, ask.prompt_ids, stops=StopAutomaton(stop))
        self.sequence = Sequence(
            ask, self.completion, self.ports, POLICY, self.deltas.append, self.failures.append
        )  # fmt: skip

    def begin(self) -> Generating:
        """Start it, and give it a place."""
        self.sequence.start()
        self.ports.placings[-1].answer()
        return self.ports.streams[-1]

    def again(self) -> Generating:
        """After a loss: let the delay pass, and give it a place."""
        self.ports.pass_time()
        self.ports.placings[-1].answer("engine2")
        return self.ports.streams[-1]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    def is_done(self) -> bool:
        """Whether it has ended once, and holds nothing."""
        ends = [delta.finish_reason for delta in self.deltas if delta.finish_reason] + self.failures
        return len(ends) == 1 and self.ports.leaves_nothing()
