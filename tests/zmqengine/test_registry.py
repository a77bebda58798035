"""A name leads to one incarnation; who waits for it is told when it is served, or that it never will be."""

from __future__ import annotations

import pytest

from zmqengine.errors import NotFound, Unavailable
from zmqengine.health import Hello
from zmqengine.peer import Location
from zmqengine.registry import Entry, Registry
from zmqengine.standby import standby_key

from .in_memory import Clock


def made() -> Registry:
    return Registry(lambda: ["engine", "worker"], Clock())


def greeted(registry: Registry, name: str = "worker", incarnation: str = "one") -> Entry:
    entry = registry.register(name, incarnation, "token", 7)
    entry.hello = Hello(
        name=name, pid=7, incarnation=incarnation, token="token", data=f"ipc:///run/{incarnation}.data",
        control=f"ipc:///run/{incarnation}.control", protocol="worker/1", schema="abc", server_key="key",
    )  # fmt: skip
    return entry


def why(name: str) -> str:
    return "LOADING"


def test_a_service_is_found_once_it_is_served_and_not_before() -> None:
    registry = made()
    entry = greeted(registry)
    early = registry.resolve("worker", False, why)
    assert isinstance(early.error, Unavailable)
    assert str(early.error) == "worker is LOADING"
    assert early.error.retry_after_s == 1.0
    registry.serve(entry)
    assert registry.resolve("worker", False, why).value == Location(
        name="worker", incarnation="one", endpoint="ipc:///run/one.data", protocol="worker/1", schema="abc",
        server_key="key",
    )  # fmt: skip


def test_an_unknown_name_is_refused_at_once_with_those_that_there_are_also_to_who_would_wait() -> None:
    answer = made().resolve("worke", True, why)
    assert isinstance(answer.error, NotFound)
    assert "no service 'worke'; it has: engine, worker" in str(answer.error)


def test_all_who_wait_are_told_when_it_is_served() -> None:
    registry = made()
    waiting = [registry.resolve("worker", True, why) for _ in range(3)]
    other = registry.resolve("engine", True, why)
    registry.serve(greeted(registry))
    assert [answer.value.incarnation for answer in waiting] == ["one"] * 3
    assert not other.done


def test_who_gave_up_waiting_is_forgotten() -> None:
    registry = made()
    gone, staying = registry.resolve("worker", True, why), registry.resolve("worker", True, why)
    gone.cancel()
    registry.serve(greeted(registry))
    assert gone.error is not None
    assert staying.value.incarnation == "one"


def test_who_waits_for_what_will_not_come_is_told_why() -> None:
    registry = made()
    waiting = registry.resolve("worker", True, why)
    registry.fail_waiting("worker", "worker is quarantined: exit code 3")
    with pytest.raises(Unavailable, match="exit code 3"):
        _ = waiting.value
    registry.fail_waiting("worker", "again")  # nobody waits: nothing happens


def test_a_new_incarnation_takes_the_name_and_is_not_served_before_it_is_ready() -> None:
    registry = made()
    first = greeted(registry)
    registry.serve(first)
    second = greeted(registry, incarnation="two")
    assert isinstance(registry.resolve("worker", False, why).error, Unavailable)
    assert registry.of("worker", "one") is None
    assert registry.of("worker", "two") is second
    registry.serve(second)
    assert registry.resolve("worker", False, why).value.incarnation == "two"


def test_a_service_that_is_withdrawn_is_not_found_and_its_first_ready_time_stays() -> None:
    registry = made()
    entry = greeted(registry)
    registry.serve(entry)
    at = entry.ready_at
    registry.withdraw(entry)
    assert isinstance(registry.resolve("worker", False, why).error, Unavailable)
    registry.serve(entry)
    assert entry.ready_at == at


def test_a_flip_gives_the_name_to_the_candidate_in_one_step() -> None:
    registry = made()
    old = greeted(registry)
    registry.serve(old)
    new = greeted(registry, standby_key("worker"), "two")
    registry.flip("worker", "worker~old")
    assert registry.resolve("worker", False, why).value.incarnation == "two"
    assert registry.resolve("worker", False, why).value.name == "worker"
    assert (registry.get("worker"), registry.get("worker~old")) == (new, old)
    assert registry.get(standby_key("worker")) is None
    assert not old.ready


def test_a_name_that_is_forgotten_fails_those_who_wait_for_it() -> None:
    registry = made()
    greeted(registry)
    waiting = registry.resolve("worker", True, why)
    registry.forget("worker")
    assert isinstance(waiting.error, Unavailable)
    assert "not a service of this run any more" in str(waiting.error)
    assert registry.get("worker") is None
    registry.forget("never there")
