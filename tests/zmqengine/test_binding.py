"""What may be bound on tcp is decided by its address alone, however that is written."""

from __future__ import annotations

import pytest

from zmqengine.binding import Binding, parse_tcp
from zmqengine.errors import ConfigError


@pytest.mark.parametrize(
    ("endpoint", "reach"),
    [
        ("tcp://127.0.0.1:0", "loopback"),
        ("tcp://127.9.9.9:5555", "loopback"),
        ("tcp://localhost:0", "loopback"),
        ("tcp://[::1]:0", "loopback"),
        ("tcp://[::ffff:127.0.0.1]:0", "loopback"),
        ("tcp://10.0.0.5:0", "one address"),
        ("tcp://[fe80::1]:0", "one address"),
        ("tcp://eth0:65535", "one address"),
        ("tcp://db.example.org:1", "one address"),
        ("tcp://*:1", "all interfaces"),
        ("tcp://0.0.0.0:1", "all interfaces"),
        ("tcp://[::]:1", "all interfaces"),
        ("tcp://[0:0:0:0:0:0:0:0]:1", "all interfaces"),
        ("tcp://[::ffff:0.0.0.0]:1", "all interfaces"),
    ],
)
def test_an_address_says_from_where_it_can_be_dialled(endpoint: str, reach: str) -> None:
    assert parse_tcp(endpoint).reach == reach


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:*", "tcp://127.0.0.1:65536", "tcp://:5",
        "tcp://127.0.0.1:5;10.0.0.5:5", "tcp://127.evil.com:5", "tcp://0:5", "tcp://0x7f000001:5", "tcp://0.0:5",
        "tcp://127.0.0.256:5", "tcp://127.0.0.1:5\n", "tcp://[::1:5", "tcp://[not an address]:5", "tcp:// *:5",
    ],
)  # fmt: skip
def test_what_libzmq_would_read_in_ways_of_its_own_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"expected tcp://ADDRESS:PORT"):
        parse_tcp(endpoint)


@pytest.mark.parametrize("endpoint", ["tcp://*:5", "tcp://0.0.0.0:5", "tcp://[::]:5"])
def test_all_interfaces_are_refused_unless_they_are_asked_for_by_name(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="all_interfaces = true"):
        Binding(endpoint=endpoint, curve=True).check()
    asked = Binding(endpoint=endpoint, all_interfaces=True)
    asked.check()
    assert asked.needs_keys


def test_only_loopback_does_without_keys_and_only_if_they_are_not_asked_for() -> None:
    assert not Binding(endpoint="tcp://127.0.0.1:0").needs_keys
    assert Binding(endpoint="tcp://127.0.0.1:0", curve=True).needs_keys
    assert Binding(endpoint="tcp://10.0.0.5:0").needs_keys
    assert not Binding(endpoint="ipc:///a/b").needs_keys


@pytest.mark.parametrize("flags", [{"curve": True}, {"all_interfaces": True}])
def test_options_of_tcp_are_refused_on_ipc_rather_than_ignored(flags: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match="are for tcp"):
        Binding(endpoint="ipc:///a/b", **flags).check()
