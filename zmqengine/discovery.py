"""How a command, a script or a service run by hand finds a run and the services in it."""

from __future__ import annotations

from pathlib import Path

from .broker_interface import BrokerInterface
from .client import Client
from .peer import Location
from .rundir import RunDirectory

RESOLVE_DEADLINE_S = 10.0


def run_directory(run: str) -> Path:
    """Directory of a run that is alive. Raises NotFound."""
    return RunDirectory.open(run).path


def broker_of(run: str) -> Location:
    """Where a run's broker is. Raises NotFound, naming the runs that there are."""
    return Location(name=f"broker of run {run}", incarnation="", endpoint=RunDirectory.open(run).broker)


def resolve(run: str, name: str) -> Location:
    """Where a service is served. Raises NotFound and Unavailable."""
    with Client(broker_of(run), BrokerInterface, deadline_s=RESOLVE_DEADLINE_S) as broker:
        location: Location = broker.resolve(name)
        return location
