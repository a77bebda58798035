"""What a launcher tells the process that it spawns, as environment variables: any program can read them."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from .binding import Binding

_PREFIX = "ZMQENGINE_"
INCARNATION = f"{_PREFIX}INCARNATION"
RUN_DIR = f"{_PREFIX}RUN_DIR"
DEATH_FD = f"{_PREFIX}DEATH_FD"
"""Who has it ends with its launcher."""


def new_incarnation() -> str:
    """A fresh random identity, for one run of one process."""
    return os.urandom(6).hex()


class SpawnInfo(msgspec.Struct, frozen=True):
    """Identity and surroundings of one incarnation of a service."""

    name: str
    incarnation: str = msgspec.field(default_factory=new_incarnation)
    run: str = ""
    """Name of the run; empty for a service that runs alone."""
    run_dir: str = ""
    broker: str = ""
    """Endpoint of the broker; empty for a service that runs alone."""
    token: str = ""
    """One-time: proves at HELLO that the launcher spawned this process."""
    options: str = "{}"
    """The service's options, as JSON."""
    death_fd: int = -1
    """A pipe whose writing end the launcher holds: at its end, the launcher is gone."""
    peers: str = "{}"
    """Endpoints of peers, by name, as JSON: for a service without a broker."""
    peer_keys: str = "{}"
    """CURVE public keys of those peers that have one, by name, as JSON."""
    bind: str = ""
    """Where its data socket is to be bound, a `Binding` as JSON; empty: in the run directory."""

    def to_environ(self) -> dict[str, str]:
        """The variables that carry this."""
        return {
            f"{_PREFIX}{name.upper()}": str(value)
            for name in self.__struct_fields__
            if (value := getattr(self, name)) not in ("", -1)
        }

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Names of the variables that carry this."""
        return frozenset(f"{_PREFIX}{name.upper()}" for name in cls.__struct_fields__)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> SpawnInfo | None:
        """What the launcher told this process; None if it was not spawned by one."""
        if f"{_PREFIX}NAME" not in environ or f"{_PREFIX}BROKER" not in environ:
            return None
        found = {n: environ[key] for n in cls.__struct_fields__ if (key := f"{_PREFIX}{n.upper()}") in environ}
        death_fd = int(found.pop("death_fd", "-1"))
        return cls(**found, death_fd=death_fd)

    @property
    def binding(self) -> Binding:
        """Where the data socket is bound."""
        told = msgspec.json.decode(self.bind, type=Binding) if self.bind else Binding()
        return told if told.endpoint else msgspec.structs.replace(told, endpoint=self.endpoint("data"))

    def endpoint(self, role: str) -> str:
        """Where this incarnation binds its socket: in the run directory, or, alone, in a directory of its own."""
        return f"ipc://{self.run_dir}/{self.name}-{self.incarnation}.{role}"
