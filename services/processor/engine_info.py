"""What the engine has said of itself: asked once, and then now and then beside the requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from services.protocols.engine import EngineInfo

Answer = Callable[[EngineInfo | None, BaseException | None], object]


class EngineInfoCache:
    """Gives every request the engine's info; however many ask at once, the engine is asked once.

    Its limits change when its worker is replaced, and with its own incarnation. Neither is heard of here before the
    engine is talked to, so what is known is used, and asked for again when it is `fresh_s` seconds old.
    """

    def __init__(
        self, ask: Callable[[Answer], object], *, clock: Callable[[], float] = time.monotonic, fresh_s: float = 1.0
    ) -> None:
        """ask: asks the engine, and has the answer or the error given to its argument."""
        self._ask = ask
        self._clock = clock
        self._fresh_s = fresh_s
        self._known: EngineInfo | None = None
        self._known_at = 0.0
        self._asking = False
        self._waiting: list[Answer] = []

    def forget(self) -> None:
        """Another incarnation serves from now on."""
        self._known = None

    def get(self, answer: Answer) -> None:
        """Have the info, or why there is none, given to `answer`; at once if it is known."""
        if self._known is not None:
            answer(self._known, None)
            if self._clock() - self._known_at < self._fresh_s:
                return
        else:
            self._waiting.append(answer)
        if not self._asking:
            self._asking = True
            self._ask(self._arrived)

    def _arrived(self, info: EngineInfo | None, error: BaseException | None) -> None:
        self._asking = False
        if info is not None:
            self._known, self._known_at = info, self._clock()
        waiting, self._waiting = self._waiting, []
        failures: list[Exception] = []
        for answer in waiting:
            try:
                answer(info, error)
            except Exception as failure:  # one request's: the others wait for theirs
                failures.append(failure)
        if failures:
            raise ExceptionGroup("the engine's info was not taken", failures)
