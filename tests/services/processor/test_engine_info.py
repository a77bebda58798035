from __future__ import annotations

import pytest

from services.processor.engine_info import Answer, EngineInfoCache
from services.protocols.engine import EngineInfo


def info(model: str = "m") -> EngineInfo:
    return EngineInfo(
        model=model, max_context=64, num_blocks=8, block_size=4, vocab_size=259, max_seqs=4, eos_token_ids=[256]
    )  # fmt: skip


class Engine:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[Answer] = []
        self.answers: list[tuple[EngineInfo | None, BaseException | None]] = []
        self.now = 100.0
        self.cache = EngineInfoCache(self.asked.append, clock=lambda: self.now, fresh_s=1.0)

    def get(self) -> None:
        self.cache.get(lambda found, error: self.answers.append((found, error)))


def test_however_many_ask_at_once_the_engine_is_asked_once() -> None:
    engine = Engine()
    for _ in range(3):
        engine.get()
    assert (len(engine.asked), engine.answers) == (1, [])
    engine.asked[0](info(), None)
    engine.get()
    assert (len(engine.asked), engine.answers) == (1, [(info(), None)] * 4)


def test_an_error_is_everybody_s_who_waits_and_the_next_asks_again() -> None:
    engine, error = Engine(), TimeoutError()
    engine.get()
    engine.get()
    engine.asked[0](None, error)
    assert engine.answers == [(None, error)] * 2
    engine.get()
    engine.asked[1](info(), None)
    assert engine.answers[2] == (info(), None)


def test_another_incarnation_is_asked_anew() -> None:
    engine = Engine()
    engine.get()
    engine.asked[0](info("old"), None)
    engine.cache.forget()
    engine.get()
    assert len(engine.asked) == 2
    engine.asked[1](info("new"), None)
    assert engine.answers[-1] == (info("new"), None)


def test_what_is_known_is_used_while_it_is_asked_for_again() -> None:
    engine = Engine()
    engine.get()
    engine.asked[0](info("old"), None)
    engine.now += 0.9
    engine.get()
    assert len(engine.asked) == 1
    engine.now += 0.2
    engine.get()
    engine.get()
    assert len(engine.asked) == 2, "once, however many come"
    assert engine.answers[1:] == [(info("old"), None)] * 3
    engine.asked[1](info("new"), None)
    engine.get()
    assert (len(engine.answers), engine.answers[-1]) == (5, (info("new"), None))


def test_what_is_known_stays_known_when_asking_again_fails() -> None:
    engine = Engine()
    engine.get()
    engine.asked[0](info(), None)
    engine.now += 2.0
    engine.get()
    engine.asked[1](None, TimeoutError())
    engine.get()
    assert engine.answers == [(info(), None)] * 3
    assert len(engine.asked) == 3


def test_who_comes_after_it_was_forgotten_waits_for_the_question_under_way() -> None:
    engine = Engine()
    engine.get()
    engine.asked[0](info("old"), None)
    engine.now += 2.0
    engine.get()
    engine.cache.forget()
    engine.get()
    assert (len(engine.asked), len(engine.answers)) == (2, 2)
    engine.asked[1](info("new"), None)
    assert engine.answers[2] == (info("new"), None)


def test_who_asks_while_answers_are_given_is_answered_too() -> None:
    engine = Engine()
    engine.cache.get(lambda found, error: engine.get())
    engine.asked[0](None, TimeoutError())
    assert len(engine.asked) == 2
    engine.asked[1](info(), None)
    assert engine.answers == [(info(), None)]


def test_one_who_fails_on_the_answer_does_not_keep_it_from_the_others() -> None:
    engine = Engine()

    def fails(found: EngineInfo | None, error: BaseException | None) -> None:
        raise RuntimeError("no use for it")

    engine.cache.get(fails)
    engine.get()
    with pytest.raises(ExceptionGroup) as raised:
        engine.asked[0](info(), None)
    assert raised.group_contains(RuntimeError, match="no use for it")
    assert engine.answers == [(info(), None)]
