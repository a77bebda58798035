"""engine/1: turns a prompt's tokens into a stream of numbered tokens.

| method | kind | answers |
|---|---|---|
| generate | stream | TokenChunk: the next tokens; several in one for a reader that is slow |
| abort | call, idempotent | whether the request was known; it ends with finish reason "abort" |
| info | call, idempotent | EngineInfo; waits for the worker |
| stats | call, idempotent | EngineStats: counters and gauges |

READY without a worker: requests wait for it. A worker is attached by its `info` and a `reset`; then it is sent a step
whenever there is work and fewer than `pipeline` are under way. Where it is lost, or a step fails, the next incarnation
(or the same one, reset) is attached, and every request goes on from its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from services.protocols.engine import EngineInfo, EngineInterface, EngineStats, GenerateTokens, TokenChunk
from services.protocols.worker import StepBatch, StepResult, WorkerInfo, WorkerInterface
from zmqengine import Config, Deferred, Outlet, Service
from zmqengine.errors import InvalidArgument, Overloaded, PeerLost, StaleIncarnation, Unavailable

from .batching import Batching
from .limits import Options
from .outcome import Ending, Outcome
from .reader import Reader
from .refusal import DuplicateRequest, NeverFits, QueueFull
from .steps import WorkerFault

_ATTACH_S = 30.0
"""Budget of each question to a worker that is to be attached; a name is looked up again after it."""
_REDIAL_S = (0.02, 1.0)
"""Wait before the first and, growing, at most before a later attempt to attach."""
_WATCH_S = 1.0
"""How often a worker that has nothing to do is asked whether it is there."""
_FULL_RETRY_S = 1.0
"""When to ask again while the queue is full; the scheduler, who sees rates, says it better before it comes to this."""


class EngineConfig(Config):
    """Options of the engine. A worker's own limits go before.

    The defaults are measured on a CPU (SmolLM2-135M in float32, two cores): steps of 256 tokens have 98 % of the
    throughput of larger ones, of 128 tokens 92 %; planning ahead gave no throughput, and later first tokens.
    """

    worker: Annotated[str, Meta(min_length=1, description="Name of the worker.")] = "worker"
    max_batched_tokens: Annotated[int, Meta(ge=1, description="Tokens that a step computes at most.")] = 256
    max_seqs: Annotated[int, Meta(ge=1, description="Sequences that run at once at most.")] = 64
    prefill_chunk: Annotated[int, Meta(ge=1, description="Tokens of one prompt in a step at most.")] = 128
    pipeline: Annotated[int, Meta(ge=1, le=2, description="Steps under way at once; 2 plans ahead of the answer.")] = 1
    max_waiting: Annotated[int, Meta(ge=1, description="Requests that wait at most; more are refused.")] = 1024
    watermark: Annotated[
        float, Meta(ge=0.0, lt=1.0, description="Share of the KV blocks that an admission leaves free.")
    ] = 0.01
    step_timeout_s: Annotated[float, Meta(gt=0.0, description="Longest time that a step may take.")] = 600.0


class Engine(Service, EngineInterface):
    """Continuous batching over a worker."""

    config: EngineConfig

    def setup(self) -> None:
        config = self.config
        options = Options(
            max_batched_tokens=config.max_batched_tokens, max_seqs=config.max_seqs, prefill_chunk=config.prefill_chunk,
            pipeline=config.pipeline, max_waiting=config.max_waiting, watermark=config.watermark,
        )  # fmt: skip
        self._batching = Batching(options)
        self._readers: dict[str, tuple[Outlet[TokenChunk], Reader]] = {}
        """Of the requests that have not ended, by their ids."""
        self._info_waiters: list[Deferred[EngineInfo]] = []
        self._worker_info: WorkerInfo | None = None
        self._was_attached = self._draining = self._pump_due = False
        self._attempts = self._attachment = self._connections = 0
        self._session: tuple[str, int] = ("", 0)
        # Bound: a step counts on what this very incarnation was told before.
        self._worker = self.peer(config.worker, WorkerInterface).options(bound=True)
        self._worker.on_attach(self._connected)
        self._attach()

    def drain(self, deadline_s: float) -> None:
        """Requests that run end by themselves; without a worker they would not."""
        self._draining = True
        for waiter in self._info_waiters[:]:
            waiter.reject(Unavailable(f"{self.name} is draining"))
        if self._worker_info is None:
            self._give_up()

    def queued(self) -> int:
        return len(self._batching.waiting)

    # engine/1

    def generate(self, request: GenerateTokens, out: Outlet[TokenChunk]) -> None:
        try:
            ending = self._batching.add(request, self.loop.clock())
        except NeverFits as refusal:
            raise InvalidArgument(str(refusal), field=refusal.field) from None
        except DuplicateRequest as refusal:
            raise InvalidArgument(str(refusal), field="request.request_id") from None
        except QueueFull as refusal:
            raise Overloaded(str(refusal), retry_after_s=_FULL_RETRY_S) from None
        reader = Reader(out, len(request.generated_token_ids), logprobs=request.sampling.logprobs is not None)
        out.on_credit(reader.serve)
        if ending is not None:
            reader.end(ending)
            return
        self._readers[request.request_id] = (out, reader)
        out.on_cancel(lambda: self._cancelled(request.request_id, out))
        self._pump_soon()

    def abort(self, request_id: str) -> bool:
        known = self._batching.abort(request_id)
        if known:
            self._readers.pop(request_id)[1].end(Ending("abort"))
        return known

    def info(self) -> Deferred[EngineInfo]:
        answer: Deferred[EngineInfo] = Deferred()
        answer.add_done_callback(lambda _: self._info_waiters.remove(answer))
        self._info_waiters.append(answer)
        self._answer_info()
        return answer

    def stats(self) -> EngineStats:
        absent = "restarting" if self._was_attached else "absent"
        return self._batching.stats(absent if self._worker_info is None else "ready")

    # Readers

    def _tell(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            request_id, ending = outcome.request.request_id, outcome.ending
            if ending is not None and ending.error is not None:
                self.log.warning("request %s failed: %s", request_id, ending.error)
            found = self._readers.get(request_id) if ending is None else self._readers.pop(request_id, None)
            if found is None:  # given up in this very turn
                continue
            out, reader = found
            if ending is not None and ending.field is not None and not reader.started:
                out.fail(InvalidArgument(ending.error or "", field=ending.field))
            else:
                reader.put(outcome)

    def _cancelled(self, request_id: str, out: Outlet[TokenChunk]) -> None:
        """A reader is gone. Its request may have ended before, and the id may be another's by now."""
        found = self._readers.get(request_id)
        if found is not None and found[0] is out:
            del self._readers[request_id]
            self._batching.abort(request_id)

    def _give_up(self) -> None:
        """Nothing can be generated any more."""
        readers, self._readers = self._readers, {}
        for request_id, (out, _) in readers.items():
            self._batching.abort(request_id)
            out.fail(Unavailable(f"{self.name} is draining, and its worker is not there"))

    # The worker: attaching

    def _connected(self, _: object) -> None:
        self._connections += 1

    def _current_session(self) -> tuple[str, int]:
        """What changes when calls go to another incarnation than before."""
        return self._worker.incarnation, self._connections

    def _attach(self) -> None:
        """Ask the worker who it is, then reset it. Whatever goes wrong, it is tried again."""
        self._attempts += 1
        peer = self._worker.options(deadline_s=_ATTACH_S)
        asked: Deferred[WorkerInfo] = peer.info()

        def answered(_: object) -> None:
            if asked.error is not None:
                self._attach_again(asked.error)
                return
            session = self._current_session()
            reset: Deferred[None] = peer.reset()
            reset.add_done_callback(lambda _: self._reset_done(reset, asked.value, session))

        asked.add_done_callback(answered)

    def _reset_done(self, reset: Deferred[None], info: WorkerInfo, session: tuple[str, int]) -> None:
        if reset.error is not None:
            self._attach_again(reset.error)
        elif session != self._current_session():
            self._attach_again(Unavailable("another incarnation took its place meanwhile"))
        else:
            self._session = session
            self._attached(info)

    def _attach_again(self, error: BaseException) -> None:
        if self._attempts == 1:
            self.log.info("worker %s is not there yet: %s", self.config.worker, error)
        first, most = _REDIAL_S
        self.loop.call_later(min(most, first * 2 ** min(self._attempts, 10)), self._attach)

    def _attached(self, info: WorkerInfo) -> None:
        self.log.info("worker %s attached: %d blocks of %d", self._session[0], info.num_blocks, info.block_size)
        self._attempts = 0
        self._attachment += 1
        self._worker_info, self._was_attached = info, True
        self._tell(self._batching.attach(info))
        self._answer_info()
        self._watch_later()
        self._pump()

    def _lost(self, outcomes: list[Outcome], reason: object) -> None:
        """The worker is gone, or does not know any more what it is doing: attach it, or its successor."""
        self.log.warning("worker lost, %d requests wait for it: %s", len(self._batching.waiting), reason)
        self._attachment += 1  # answers to what it was asked do not count any more
        self._worker_info = None
        self._tell(outcomes)
        if self._draining:
            self._give_up()
        else:
            self._attach()

    def _answer_info(self) -> None:
        limits, info = self._batching.limits, self._worker_info
        if limits is None or info is None:
            return
        answer = limits.describe(info.model)
        for waiter in self._info_waiters[:]:
            waiter.resolve(answer)

    def _watch_later(self) -> None:
        attachment = self._attachment
        self.loop.call_later(_WATCH_S, lambda: self._watch(attachment))

    def _watch(self, attachment: int) -> None:
        """A worker that dies while it has nothing to do is missed before the next request is."""
        if attachment != self._attachment:
            return
        if self._batching.under_way:  # its answer tells
            self._watch_later()
            return
        asked = self._worker.options(deadline_s=_ATTACH_S).info()

        def answered(_: object) -> None:
            if attachment != self._attachment:
                return
            if asked.error is not None or self._session != self._current_session():
                self._lost(self._batching.detach(), asked.error or "another incarnation took its place")
            else:
                self._watch_later()

        asked.add_done_callback(answered)

    # The worker: stepping

    def _pump_soon(self) -> None:
        """Plan in this turn, but behind all messages that it brought: requests that come together go together."""
        if not self._pump_due:
            self._pump_due = True
            self.loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        attachment = self._attachment
        while attachment == self._attachment and (batch := self._batching.next_batch()) is not None:
            self._step(batch)

    def _step(self, batch: StepBatch) -> None:
        attachment = self._attachment
        call: Deferred[StepResult] = self._worker.options(deadline_s=self.config.step_timeout_s).step(batch)
        if self._session != self._current_session():
            call.cancel("the connection broke while nothing was under way: it would go to another incarnation")
            self._lost(self._batching.detach(), "the connection broke")
            return
        call.add_done_callback(lambda _: self._stepped(call, batch.step) if attachment == self._attachment else None)

    def _stepped(self, call: Deferred[StepResult], step: int) -> None:
        batching, error = self._batching, call.error
        if error is None:
            try:
                outcomes = batching.complete(call.value)
            except WorkerFault as fault:
                self._lost(batching.detach(batching.rows_under_way(step)), fault)
                return
            if batching.out_of_step:
                reason = "a sequence could not be sampled with which the next step goes on"
                self._lost(outcomes + batching.detach(), reason)
                return
            self._pump()  # first: the worker waits
            self._tell(outcomes)
        elif isinstance(error, InvalidArgument):
            # Only a fault of this engine does that. Those that it is about cannot go on; the others can.
            self.log.error("the worker refused step %d: %s", step, error)
            failed = batching.fail([row.request for row in batching.rows_under_way(step)], f"engine fault: {error}")
            self._lost(failed + batching.detach(), error)
        elif isinstance(error, (Unavailable, StaleIncarnation)):
            self._lost(batching.detach(), error)  # the step was not begun: nobody is to blame
        else:
            # A worker that answers has failed in this step; one that is gone may have failed in any of them.
            blamed = batching.rows_under_way(None if isinstance(error, PeerLost) else step)
            self._lost(batching.detach(blamed), error)
