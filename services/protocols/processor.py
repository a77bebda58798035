"""processor/1: text in, text out: templates, tokenizing, placement, detokenizing, stop strings. Spoken by the api."""

from typing import Annotated, Any, Iterator

from msgspec import Meta

from zmqengine import Interface, Message, call, stream

from .engine import FinishReason
from .sampling import SamplingParams


class ChatMessage(Message, omit_defaults=True):
    """One message of a conversation, as the chat template sees it."""

    role: str
    content: str | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatPrompt(Message, tag="chat"):
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: dict[str, Any] = {}


class TextPrompt(Message, tag="text"):
    text: str


class TokenPrompt(Message, tag="tokens"):
    token_ids: Annotated[list[int], Meta(min_length=1)]
    """[T]"""


class GenerateText(Message):
    """A request for n completions of one prompt."""

    request_id: Annotated[str, Meta(min_length=1, max_length=200)]
    prompt: ChatPrompt | TextPrompt | TokenPrompt
    sampling: SamplingParams
    max_tokens_default: bool = False
    """sampling.max_tokens was not given by the client: cut it to what the context has left instead of refusing."""
    n: Annotated[int, Meta(ge=1, le=128)] = 1
    """Completions; with a seed, completion i is sampled with seed + i."""
    stop: list[Annotated[str, Meta(min_length=1)]] = []
    """Strings that end a completion; they are not part of its text unless include_stop says so."""
    include_stop: bool = False
    skip_special_tokens: bool = True
    echo: bool = False
    """Begin each completion's text with the prompt's."""
    priority: int = 0
    tenant: str = ""


class TopToken(Message, array_like=True):
    token: str
    """Text of the token; where it is part of a character, with replacement characters."""
    token_id: int
    logprob: float
    raw: bytes
    """The token's own bytes."""


class TextLogprob(Message, array_like=True):
    """A generated token with its alternatives, most probable first."""

    token: str
    token_id: int
    logprob: float
    raw: bytes
    top: list[TopToken]


class TextDelta(Message):
    """What one completion gained. Its texts, joined, are the completion; a delta never ends within a character."""

    index: int
    """Which of the n completions."""
    text: str
    token_count: int
    """Tokens generated so far for this completion, held-back ones included."""
    logprobs: list[TextLogprob] | None = None
    finish_reason: FinishReason | None = None
    """Exactly one delta per completion, its last, has one."""
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended it."""
    error: str | None = None
    prompt_tokens: int = 0
    """Tokens of the prompt, in every delta."""
    cached_tokens: int = 0


class ModelCard(Message):
    """What is served."""

    name: str
    """The name clients ask for."""
    path: str
    max_context: int
    vocab_size: int
    has_chat_template: bool
    created: int
    """The model file's modification time, epoch seconds."""


class ProcessorInterface(Interface, protocol="processor/1"):
    """Text generation."""

    @stream
    def generate(self, request: GenerateText) -> Iterator[TextDelta]:
        """Generate text. Cancelling it frees everything within one step.

        Errors: invalid_argument with the field (prompt, messages, stop, max_tokens, logit_bias, ...), overloaded with
        retry_after_s, unavailable (a service behind is not there within the deadline).
        """

    @call(idempotent=True)
    def model(self) -> ModelCard:
        """What is served."""

    @call(idempotent=True)
    def tokenize(self, prompt: ChatPrompt | TextPrompt | TokenPrompt, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a prompt, after its template."""

    @call(idempotent=True)
    def detokenize(self, token_ids: list[int]) -> str:
        """Text of token ids, special tokens included."""

    @call(idempotent=True)
    def check(self) -> str:
        """Answers "ok" when the whole chain behind is there: scheduler, engine and worker; else unavailable with the
        name of what is missing."""
