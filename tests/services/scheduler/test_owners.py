from __future__ import annotations

from services.scheduler.owners import Owners


def test_a_new_incarnation_gives_up_what_the_last_one_held() -> None:
    owners = Owners()
    assert owners.speaks("p", "1") == []
    for request_id in ("b", "a", "c"):
        owners.hold(request_id, "p", "1")
    owners.forget("c")
    owners.hold("other", "q", "1")

    assert owners.speaks("p", "1") == []
    assert owners.speaks("p", "2") == ["a", "b"]


def test_a_superseded_incarnation_that_still_speaks_supersedes_nobody() -> None:
    owners = Owners()
    owners.speaks("p", "1")
    owners.speaks("p", "2")
    owners.hold("new", "p", "2")

    assert owners.speaks("p", "1") == []
    assert owners.speaks("p", "2") == []
    assert owners.speaks("p", "3") == ["new"]


def test_what_was_forgotten_is_held_by_nobody() -> None:
    owners = Owners()
    owners.speaks("p", "1")
    owners.hold("a", "p", "1")
    owners.forget("a")
    owners.forget("a")

    assert owners.speaks("p", "2") == []
    assert owners._held == {}
    assert owners._holder == {}
