"""What the engine has said of itself, asked once per incarnation."""

from __future__ import annotations

from collections.abc import Callable

from services.protocols.engine import EngineInfo

Answer = Callable[[EngineInfo | None, BaseException | None], object]


class EngineInfoCache:
    """Gives every request the engine's info; however many ask at once, the engine is asked once."""

    def __init__(self, ask: Callable[[Answer], object]) -> None:
        """ask: asks the engine, and has the answer or the error given to its argument."""
        self._ask = ask
        self._known: EngineInfo | None = None
        self._waiting: list[Answer] = []

    def forget(self) -> None:
        """Another incarnation serves from now on."""
        self._known = None

    def get(self, answer: Answer) -> None:
        """Have the info, or why there is none, given to `answer`; at once if it is known."""
        if self._known is not None:
            answer(self._known, None)
            return
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._ask(self._arrived)

    def _arrived(self, info: EngineInfo | None, error: BaseException | None) -> None:
        self._known = info
        waiting, self._waiting = self._waiting, []
        failures: list[Exception] = []
        for answer in waiting:
            try:
                answer(info, error)
            except Exception as failure:  # one request's: the others wait for theirs
                failures.append(failure)
        if failures:
            raise ExceptionGroup("the engine's info was not taken", failures)
