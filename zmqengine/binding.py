"""Where a service listens beside its run directory, and the rule of what may be bound on tcp.

Who can reach a tcp port can call whatever is served there, so: on loopback, which has to be named, it is served with
or without CURVE; on any other address with CURVE alone; on all interfaces only where that is asked for besides.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Literal, NamedTuple

from .errors import ConfigError
from .message import Message

# libzmq takes more: "eth0" for an interface, "0" for all of them, "SOURCE;TARGET" to dial. A host here is an address or
# a name that cannot be read as one.
_TCP = re.compile(r"tcp://(\*|\[[0-9A-Fa-f:.%\w]+\]|\d{1,3}(?:\.\d{1,3}){3}|[A-Za-z](?:[\w.-]*\w)?):(\d{1,5})")

Reach = Literal["loopback", "one address", "all interfaces"]


class TcpEndpoint(NamedTuple):
    """``tcp://HOST:PORT``, read."""

    host: str
    port: int

    @property
    def reach(self) -> Reach:
        """From where it can be dialled when it is bound."""
        if self.host == "*":
            return "all interfaces"
        if self.host == "localhost":
            return "loopback"
        address = _address(self.host)
        if address is None:
            return "one address"  # a name
        mapped = getattr(address, "ipv4_mapped", None) or address
        if mapped.is_unspecified:
            return "all interfaces"
        return "loopback" if mapped.is_loopback else "one address"

    @property
    def is_v6(self) -> bool:
        """Whether its sockets have to speak IPv6."""
        return self.host.startswith("[")


def parse_tcp(endpoint: str) -> TcpEndpoint:
    """Raises ConfigError for what is not of the form."""
    found = _TCP.fullmatch(endpoint)
    if found is not None and int(found[2]) < 65536:
        read = TcpEndpoint(found[1], int(found[2]))
        if not (read.host[0].isdigit() or read.is_v6) or _address(read.host) is not None:
            return read
    raise ConfigError(f"endpoint {endpoint!r}: expected tcp://ADDRESS:PORT, as tcp://10.0.0.5:0 (0: any free port)")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


class Binding(Message, omit_defaults=True):
    """Where a service serves, if not in its run directory, and how."""

    endpoint: str = ""
    """Empty: in the run directory."""
    curve: bool = False
    """Whether to ask for CURVE also where it could be done without, on loopback."""
    all_interfaces: bool = False
    """Whether an address that stands for all interfaces is meant as such."""

    @property
    def needs_keys(self) -> bool:
        """Whether it is served with CURVE."""
        return self.endpoint.startswith("tcp://") and (self.curve or parse_tcp(self.endpoint).reach != "loopback")

    def check(self) -> None:
        """Raises ConfigError for what would never be bound, whatever keys there are."""
        if not self.endpoint.startswith("tcp://"):
            if self.curve or self.all_interfaces:
                raise ConfigError(f"bind {self.endpoint!r}: curve and all_interfaces are for tcp://ADDRESS:PORT")
            return
        check_reach(self.endpoint, all_interfaces=self.all_interfaces)


def check_reach(endpoint: str, *, all_interfaces: bool) -> Reach:
    """From where a tcp endpoint could be dialled. Raises ConfigError where that is everywhere, and not asked for."""
    reach = parse_tcp(endpoint).reach
    if reach == "all interfaces" and not all_interfaces:
        raise ConfigError(
            f"endpoint {endpoint!r} stands for all interfaces of this machine: name the address of one, "
            "or ask for all with all_interfaces = true (--all-interfaces)"
        )
    return reach
