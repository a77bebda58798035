"""Which services an engine consists of, and what each comes after: computed from what is asked for, nothing else.

| profile | mixed | prefix cache | cache before worker | worker before cache |
|---|---|---|---|---|
| 1 | 1 | 1 | 0 | 1 |
| 1 | 1 | 0 | 0 | 0 |
| 1 | 0 | 1 | 0 | 1 |
| 1 | 0 | 0 | 0 | 1 |
| 0 | 1 | 1 | 0 | 1 |
| 0 | 1 | 0 | 0 | 0 |
| 0 | 0 | 1 | 1 | 0 |
| 0 | 0 | 0 | 1 | 0 |

Where both columns are 0, there is no cache service. Cache first: the cache creates the arena of KV blocks, and the
worker attaches. Worker first: the worker measures, creates the arena, and the cache attaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CacheOrder = Literal["no cache", "cache first", "worker first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What is asked for."""

    profile: bool
    """The number of KV blocks is not given, so the worker measures it."""
    mixed: bool
    """One instance does prefill and decode."""
    prefix_cache: bool
    experts: int = 0
    """Expert services: ranks beside rank 0, which is the common engine."""


@dataclass(frozen=True, slots=True)
class Place:
    """One service in the order of the start."""

    service: str
    after: tuple[str, ...]
    """Those that are READY before it is set up."""
    replicas: int = 1


def cache_order(layout: Layout) -> CacheOrder:
    """The table above."""
    if layout.mixed and not layout.prefix_cache:
        return "no cache"
    return "worker first" if layout.profile or layout.mixed else "cache first"


def launch_order(layout: Layout) -> list[Place]:
    """The services in the order of their start.

    The scheduler; the expert services; the common engine and its processor; worker and cache; the api. The engine is
    READY without its worker (it waits for it), so nothing but the api has to wait for the weights.
    """
    scheduler = "scheduler" if layout.mixed else "splitwise"
    places = [Place(scheduler, ())]
    if layout.experts:
        places.append(Place("expert", (scheduler,), layout.experts))
    places.append(Place("engine", (places[-1].service,)))
    places.append(Place("processor", ("engine",)))
    order = cache_order(layout)
    if order == "cache first":
        places += [Place("cache", ("engine",)), Place("worker", ("cache",))]
    else:
        places.append(Place("worker", ("engine",)))
    if order == "worker first":
        places.append(Place("cache", ("worker",)))
    places.append(Place("api", ("processor", places[-1].service)))
    return places
