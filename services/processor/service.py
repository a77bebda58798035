"""processor/1: text in, text out.

| method | kind | answers |
|---|---|---|
| generate | stream | TextDelta: what each of the n completions gained |
| model | call, idempotent | ModelCard: what is served |
| tokenize | call, idempotent | token ids of a prompt, after its template |
| detokenize | call, idempotent | text of token ids |
| check | call, idempotent | "ok" when scheduler, engine and worker are there |

It speaks scheduler/1 (a place for each completion) and engine/1 (on the engine that the placement names). A request is
checked, rendered and tokenized; then `generation` and `sequence` take it through, also when an engine is lost.

(A little longer than other files: this one alone may know zmqengine, so what a sequence asks of it is here, too.)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from services.models.load_error import ModelFileError
from services.models.store import resolve
from services.models.store_error import ModelStoreError
from services.protocols.engine import EngineInfo, EngineInterface, EngineStats, GenerateTokens, TokenChunk
from services.protocols.processor import (
    ChatPrompt,
    GenerateText,
    ModelCard,
    ProcessorInterface,
    TextDelta,
    TextPrompt,
    TokenPrompt,
)
from services.protocols.scheduler import Placement, PlaceRequest, SchedulerInterface
from zmqengine import Config, Deferred, Outlet, Service, errors
from zmqengine.retry import RETRY_CALL
from zmqengine.streams import Stream

from .engine_info import Answer, EngineInfoCache
from .generation import Generation
from .prompt import Prompt, ReadPrompt, characters_in, echo_of, read_prompt
from .request_checks import Limits, RequestError, check_ids, check_request, fit_sampling
from .sequence import Cancel, Retry, RetryPolicy, Verdict
from .template import TemplateError
from .text_model import load_text_model
from .tokenizer import TokenizerError


class ProcessorConfig(Config):
    """Options of the processor."""

    model: Annotated[str, Meta(min_length=1, description="A name, a .gguf file, or a Hugging Face folder.")] = "smollm2"
    served_name: Annotated[str | None, Meta(description="Name that clients ask for; absent: the model's own.")] = None
    chat_template: Annotated[str | None, Meta(description="File with a jinja template, for the model's own.")] = None
    engine: Annotated[str, Meta(min_length=1, description="Name of the engine that tells the limits.")] = "engine"
    scheduler: Annotated[str, Meta(min_length=1, description="Name of the scheduler.")] = "scheduler"
    max_stop_strings: Annotated[int, Meta(ge=0, description="Stop strings of a request at most.")] = 16
    max_stop_characters: Annotated[int, Meta(ge=1, description="Characters of a stop string at most.")] = 1000
    thread_characters: Annotated[
        int, Meta(ge=0, description="Prompts of more characters are tokenized beside the loop (about 1 us each).")
    ] = 4096
    retries: Annotated[
        int, Meta(ge=0, description="Times that a completion is handed in anew, without a new token between them.")
    ] = 8
    place_timeout_s: Annotated[float, Meta(gt=0, description="Longest wait for a place.")] = 600.0
    engine_timeout_s: Annotated[float, Meta(gt=0, description="Longest wait for an engine that is not there.")] = 60.0
    check_timeout_s: Annotated[float, Meta(gt=0, description="Time for a peer to answer a check.")] = 2.0


class Processor(Service, ProcessorInterface):
    """Templates, tokenizing, placement, detokenizing, stop strings."""

    config: ProcessorConfig

    def setup(self) -> None:
        config = self.config
        try:
            self._files = resolve(config.model)
            template = None if config.chat_template is None else Path(config.chat_template)
            self._model = load_text_model(self._files, template)
        except (ModelStoreError, ModelFileError, TokenizerError, TemplateError) as error:
            raise errors.ConfigError(f"option model={config.model!r}: {error}") from error
        self._engine = self.peer(config.engine, EngineInterface)
        self._scheduler = self.peer(config.scheduler, SchedulerInterface)
        self._info = EngineInfoCache(self._ask_info)
        self._engine.on_attach(lambda _: self._info.forget())
        self._ports = _Ports(self)
        self._policy = RetryPolicy(attempts=config.retries)

    def selftest(self) -> None:
        """What the vocabulary writes, it must read: a text comes back as it was."""
        text = "Hello, 2 worlds: \u00bd \u4f60\u597d \U0001f30d\n"
        tokenizer = self._model.tokenizer
        back = tokenizer.decode(tokenizer.encode(text, add_bos=False))
        # SentencePiece puts a space before the text.
        if back.removeprefix(" ") != text:
            raise errors.ConfigError(f"{self._files.path}: its tokenizer turns {text!r} into {back!r}")

    # processor/1

    def generate(self, request: GenerateText, out: Outlet[TextDelta]) -> None:
        self._with_limits(lambda limits, error: self._begin(request, out, limits, error))

    def model(self) -> Deferred[ModelCard]:
        answer: Deferred[ModelCard] = Deferred()
        self._with_limits(lambda limits, error: _settle(answer, lambda: self._card(_known(limits, error))))
        return answer

    def tokenize(
        self, prompt: ChatPrompt | TextPrompt | TokenPrompt, add_special_tokens: bool = True
    ) -> Deferred[list[int]]:
        answer: Deferred[list[int]] = Deferred()

        def read(limits: Limits | None, error: BaseException | None) -> None:
            if limits is None:
                answer.reject(error or errors.Unavailable(f"{self.config.engine} gave no limits"))
                return
            reading = self._read(prompt, limits, "prompt", add_special_tokens)
            reading.add_done_callback(lambda done: _settle(answer, lambda: done.value.token_ids))

        self._with_limits(read)
        return answer

    def detokenize(self, token_ids: list[int]) -> str:
        tokenizer = self._model.tokenizer
        try:
            check_ids(token_ids, 2**31, "token_ids")
        except RequestError as error:
            raise _refusal(error) from error
        return tokenizer.decode(token_ids)

    def check(self) -> Deferred[str]:
        answer: Deferred[str] = Deferred()
        deadline_s = self.config.check_timeout_s
        scheduler = self._scheduler.options(deadline_s=deadline_s).stats()
        engine = self._engine.options(deadline_s=deadline_s).stats()

        def checked(_: Any) -> None:
            if scheduler.done and engine.done:
                _settle(answer, lambda: self._chain(scheduler, engine))

        scheduler.add_done_callback(checked)
        engine.add_done_callback(checked)
        return answer

    # A request

    def _begin(
        self, request: GenerateText, out: Outlet[TextDelta], limits: Limits | None, error: BaseException | None
    ) -> None:
        """The limits are known: check, and have the prompt read."""
        if out.closed:
            return
        if limits is None:
            out.fail(error or errors.Unavailable(f"{self.config.engine} gave no limits"))
            return
        try:
            check_request(request, limits)
        except RequestError as refused:
            out.fail(_refusal(refused))
            return
        reading = self._read(request.prompt, limits, "request.prompt")
        reading.add_done_callback(lambda done: self._generate(request, out, limits, done))

    def _generate(
        self, request: GenerateText, out: Outlet[TextDelta], limits: Limits, reading: Deferred[ReadPrompt]
    ) -> None:
        """The prompt is read: fit it, and go."""
        if out.closed:
            return
        try:
            prompt = reading.value
            sampling = fit_sampling(request, len(prompt.token_ids), limits)
        except RequestError as refused:
            out.fail(_refusal(refused))
            return
        except Exception as error:  # whatever reading raised is this request's failure, not the service's
            out.fail(error)
            return
        tokenizer = self._model.tokenizer
        generation = Generation(
            request, prompt.token_ids, sampling, tokenizer=tokenizer, ports=self._ports, reader=out,
            owner=(self.name, self.incarnation), policy=self._policy,
            echo=echo_of(tokenizer, prompt, skip_special=request.skip_special_tokens) if request.echo else "",
        )  # fmt: skip
        out.on_credit(generation.credit)
        out.on_cancel(generation.cancel)
        generation.start()

    def _read(
        self, prompt: Prompt, limits: Limits, field: str, add_special_tokens: bool = True
    ) -> Deferred[ReadPrompt]:
        """Read a prompt, a long one beside the loop: tokenizing releases the interpreter's lock."""
        answer: Deferred[ReadPrompt] = Deferred()

        def read() -> ReadPrompt:
            return read_prompt(self._model, prompt, limits, field=field, add_special_tokens=add_special_tokens)

        if characters_in(prompt) > self.config.thread_characters:
            self.loop.run_in_thread(read, answer)
        else:
            _settle(answer, read)
        return answer

    # The model and the chain

    def _with_limits(self, use: Callable[[Limits | None, BaseException | None], object]) -> None:
        config = self.config

        def known(info: EngineInfo | None, error: BaseException | None) -> None:
            limits = None if info is None else Limits(
                info.max_context, info.vocab_size, config.max_stop_strings, config.max_stop_characters
            )  # fmt: skip
            use(limits, error)

        self._info.get(known)

    def _ask_info(self, answer: Answer) -> None:
        call = self._engine.options(deadline_s=self.config.engine_timeout_s, retry=RETRY_CALL).info()
        call.add_done_callback(
            lambda done: answer(done.value, None) if done.error is None else answer(None, _absent(done.error))
        )

    def _card(self, limits: Limits) -> ModelCard:
        return ModelCard(
            name=self.config.served_name or self._files.served_name, path=str(self._files.path),
            max_context=limits.max_context, vocab_size=limits.vocab_size,
            has_chat_template=self._model.has_chat_template, created=int(self._files.path.stat().st_mtime),
        )  # fmt: skip

    def _chain(self, scheduler: Deferred[Any], engine: Deferred[EngineStats]) -> str:
        for name, asked in ((self.config.scheduler, scheduler), (self.config.engine, engine)):
            if asked.error is not None:
                raise errors.Unavailable(f"{name} is not there: {asked.error}", retry_after_s=1.0) from asked.error
        if engine.value.worker != "ready":
            raise errors.Unavailable(f"the engine's worker is {engine.value.worker}", retry_after_s=1.0)
        return "ok"


class _EngineAbsent(errors.Unavailable):
    """No engine came within the time for it."""


class _Ports:
    """What a sequence asks of scheduler and engines, over their protocols."""

    def __init__(self, service: Processor) -> None:
        self._service = service
        self._scheduler = service.peer(service.config.scheduler, SchedulerInterface)

    def place(self, request: PlaceRequest, done: Callable[[Placement | None, BaseException | None], object]) -> Cancel:
        limit_s = self._service.config.place_timeout_s
        call: Deferred[Placement] = self._scheduler.options(deadline_s=limit_s).place(request)
        call.add_done_callback(lambda d: done(d.value, None) if d.error is None else done(None, d.error))
        return call.cancel

    def release(self, request_id: str) -> None:
        try:
            self._scheduler.release(request_id)
        except errors.ZmqEngineError as error:
            # A scheduler that is gone has taken its placements with it.
            self._service.log.info("the place of %s was not released: %s", request_id, error)

    def generate(
        self, engine: str, request: GenerateTokens, on_chunk: Callable[[TokenChunk], object],
        on_end: Callable[[BaseException | None], object],
    ) -> Cancel:  # fmt: skip
        peer, limit_s = self._service.peer(engine, EngineInterface), self._service.config.engine_timeout_s
        stream: Stream[TokenChunk] = peer.generate(request)
        # A stream has no deadline, and waits for an engine that is not there as long as the run has one by that name.
        timer = self._service.loop.call_later(limit_s, lambda: None if peer.incarnation else absent())
        gave_up: _EngineAbsent | None = None

        def absent() -> None:
            nonlocal gave_up
            gave_up = _EngineAbsent(f"{engine} has not been there for {limit_s:g} s", retry_after_s=1.0)
            stream.cancel("the engine is not there")

        def ended(error: BaseException | None) -> None:
            timer.cancel()
            on_end(gave_up or error)

        def cancel() -> None:
            timer.cancel()
            stream.cancel()

        stream.subscribe(on_chunk, ended)
        return cancel

    def later(self, delay_s: float, callback: Callable[[], object]) -> Cancel:
        return self._service.loop.call_later(delay_s, callback).cancel

    def judge(self, error: BaseException) -> Verdict:
        if isinstance(error, errors.PeerLost):
            return Verdict(Retry.ALWAYS, begun=True)
        if isinstance(error, _EngineAbsent):  # it has been waited for already
            return Verdict(Retry.NEVER, begun=False)
        if isinstance(error, errors.StaleIncarnation | errors.Unavailable):
            return Verdict(Retry.ALWAYS, begun=False)
        if isinstance(error, errors.Overloaded):
            return Verdict(Retry.RESUMED, begun=False)
        refused = isinstance(error, errors.RemoteError) and not isinstance(error, errors.HandlerFailed)
        return Verdict(Retry.NEVER, begun=not refused)

    def final(self, error: BaseException) -> BaseException:
        if isinstance(error, errors.PeerLost):  # to the reader it would say that this service is lost
            return errors.Unavailable(f"given up: {error}", retry_after_s=1.0)
        return error


def _settle(answer: Deferred[Any], make: Callable[[], Any]) -> None:
    """Answer with what `make` returns, or with what it raises."""
    try:
        answer.resolve(make())
    except RequestError as error:
        answer.reject(_refusal(error))
    except Exception as error:
        answer.reject(error)


def _known(limits: Limits | None, error: BaseException | None) -> Limits:
    if limits is None:
        raise error or errors.Unavailable("the engine gave no limits")
    return limits


def _refusal(error: RequestError) -> errors.InvalidArgument:
    return errors.InvalidArgument(str(error), field=error.field)


def _absent(error: BaseException) -> BaseException:
    """An engine that does not answer what it can always answer once it is there, is not there."""
    if isinstance(error, errors.DeadlineExceeded | errors.PeerLost):
        return errors.Unavailable(f"the engine or its worker is not there: {error}", retry_after_s=1.0)
    return error
