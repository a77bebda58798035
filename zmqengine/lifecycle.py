"""States of a service and the one table of what leads from which to which."""

from __future__ import annotations

from enum import StrEnum

from .errors import UsageError


class State(StrEnum):
    """Where a service is in its life."""

    PENDING = "PENDING"
    """No process yet (or, for a service run by hand, not yet seen)."""
    SPAWNED = "SPAWNED"
    """The process was started; it has not said HELLO."""
    CONNECTED = "CONNECTED"
    """It said HELLO. It imports its code, and then waits to be released."""
    LOADING = "LOADING"
    """Released: setup and selftest run."""
    READY = "READY"
    """It answered the health call on its real endpoint, after its selftest."""
    DEGRADED = "DEGRADED"
    """It was READY, and lately missed health calls."""
    DRAINING = "DRAINING"
    """It finishes what is in flight."""
    STOPPED = "STOPPED"
    """Its process ended because it was asked to."""
    FAILED = "FAILED"
    """It ended, or had to be ended, for another reason."""
    BACKOFF = "BACKOFF"
    """It is restarted after a pause."""
    QUARANTINED = "QUARANTINED"
    """It failed too often, and is not restarted."""


class Trigger(StrEnum):
    """What leads from one state to another."""

    SPAWN = "spawn"
    HELLO = "hello"
    RELEASE = "release"
    READY = "ready"
    MISS = "miss"
    ANSWER = "answer"
    DRAIN = "drain"
    STOP = "stop"
    FAIL = "fail"
    WAIT = "wait"
    GIVE_UP = "give up"
    RESET = "reset"


_ALIVE = {Trigger.STOP: State.STOPPED, Trigger.FAIL: State.FAILED, Trigger.DRAIN: State.DRAINING}

TRANSITIONS: dict[State, dict[Trigger, State]] = {
    State.PENDING: {Trigger.SPAWN: State.SPAWNED, Trigger.HELLO: State.CONNECTED, Trigger.FAIL: State.FAILED,
                    Trigger.STOP: State.STOPPED},
    State.SPAWNED: {Trigger.HELLO: State.CONNECTED, **_ALIVE},
    State.CONNECTED: {Trigger.HELLO: State.CONNECTED, Trigger.RELEASE: State.LOADING, **_ALIVE},
    State.LOADING: {Trigger.READY: State.READY, **_ALIVE},
    State.READY: {Trigger.MISS: State.DEGRADED, Trigger.ANSWER: State.READY, **_ALIVE},
    State.DEGRADED: {Trigger.ANSWER: State.READY, Trigger.MISS: State.DEGRADED, **_ALIVE},
    State.DRAINING: {Trigger.DRAIN: State.DRAINING, Trigger.STOP: State.STOPPED, Trigger.FAIL: State.FAILED},
    State.STOPPED: {Trigger.RESET: State.PENDING, Trigger.STOP: State.STOPPED},
    State.FAILED: {Trigger.WAIT: State.BACKOFF, Trigger.GIVE_UP: State.QUARANTINED, Trigger.RESET: State.PENDING,
                   Trigger.STOP: State.STOPPED},
    State.BACKOFF: {Trigger.RESET: State.PENDING, Trigger.GIVE_UP: State.QUARANTINED, Trigger.STOP: State.STOPPED},
    State.QUARANTINED: {Trigger.RESET: State.PENDING, Trigger.STOP: State.STOPPED},
}  # fmt: skip

ALIVE = frozenset({State.SPAWNED, State.CONNECTED, State.LOADING, State.READY, State.DEGRADED, State.DRAINING})
"""States in which there is a process."""
SERVING = frozenset({State.READY, State.DEGRADED})
"""States in which calls go to it."""


def next_state(state: State, trigger: Trigger) -> State:
    """The state that `trigger` leads to. Raises UsageError where the table has no such transition."""
    try:
        return TRANSITIONS[state][trigger]
    except KeyError:
        raise UsageError(f"there is no transition from {state} by {trigger!r}") from None
