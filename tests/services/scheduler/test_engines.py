from __future__ import annotations

from services.scheduler.engines import Engines


def test_the_engine_with_the_fewest_tokens_is_chosen_and_the_first_of_equals() -> None:
    engines = Engines(["a", "b"], 10)
    chosen = []
    for number, tokens in enumerate([100, 10, 10, 200, 5]):
        engine = engines.choose()
        assert engine is not None
        engines.place(str(number), tokens, engine)
        chosen.append(engine)

    assert chosen == ["a", "b", "b", "b", "a"]


def test_a_full_engine_is_not_chosen_and_a_release_makes_room() -> None:
    engines = Engines(["a", "b"], 1)
    engines.place("small", 1, "a")
    assert engines.choose() == "b"
    engines.place("large", 1000, "b")
    assert engines.choose() is None
    assert engines.release("large") is True

    assert engines.choose() == "b"
    assert len(engines) == 1


def test_releasing_twice_or_what_is_unknown_is_a_no_op() -> None:
    engines = Engines(["a", "b"], 2)
    engines.place("r", 7, "a")

    assert [engines.release("r"), engines.release("r"), engines.release("never")] == [True, False, False]
    assert engines.choose() == "a"
    assert len(engines) == 0
