"""The table of states is the design's, whole and literal: a transition that is not in it does not happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqengine.errors import UsageError
from zmqengine.lifecycle import ALIVE, SERVING, TRANSITIONS, State, Trigger, next_state

TABLE = """
PENDING      spawn   SPAWNED      hello   CONNECTED    fail    FAILED       stop    STOPPED
SPAWNED      hello   CONNECTED    drain   DRAINING     fail    FAILED       stop    STOPPED
CONNECTED    hello   CONNECTED    release LOADING      drain   DRAINING     fail    FAILED   stop STOPPED
LOADING      ready   READY        drain   DRAINING     fail    FAILED       stop    STOPPED
READY        miss    DEGRADED     answer  READY        drain   DRAINING     fail    FAILED   stop STOPPED
DEGRADED     answer  READY        miss    DEGRADED     drain   DRAINING     fail    FAILED   stop STOPPED
DRAINING     drain   DRAINING     fail    FAILED       stop    STOPPED
STOPPED      reset   PENDING      stop    STOPPED
FAILED       wait    BACKOFF      give_up QUARANTINED  reset   PENDING      stop    STOPPED
BACKOFF      reset   PENDING      give_up QUARANTINED  stop    STOPPED
QUARANTINED  reset   PENDING      stop    STOPPED
"""


def literal() -> dict[tuple[State, Trigger], State]:
    found = {}
    for line in TABLE.strip().splitlines():
        state, *rest = line.split()
        for trigger, target in zip(rest[::2], rest[1::2], strict=True):
            found[State(state), Trigger(trigger.replace("_", " "))] = State(target)
    return found


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("trigger", Trigger)
def test_every_pair_of_state_and_trigger_is_as_the_table_says(state: State, trigger: Trigger) -> None:
    expected = literal().get((state, trigger))
    if expected is None:
        with pytest.raises(UsageError, match=f"from {state} by"):
            next_state(state, trigger)
    else:
        assert next_state(state, trigger) is expected


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)


@given(st.lists(st.sampled_from(Trigger), max_size=30))
def test_a_service_that_serves_has_said_hello_and_was_released(triggers: list[Trigger]) -> None:
    state, since_spawn = State.PENDING, set[State]()
    for trigger in triggers:
        try:
            state = next_state(state, trigger)
        except UsageError:
            continue
        since_spawn = {state} if state not in ALIVE or state is State.SPAWNED else since_spawn | {state}
        if state in SERVING:
            assert {State.CONNECTED, State.LOADING} <= since_spawn


def test_every_state_can_be_stopped() -> None:
    for state in State:
        assert next_state(state, Trigger.STOP) is State.STOPPED
