"""The public surface of the toolkit is frozen: a new name is a decision."""

import zmqengine

NAMES = {
    "Client", "Config", "Deferred", "Inlet", "Interface", "Message", "Outlet", "Service", "aconnect", "call", "connect",
    "event", "stream", "tell",
}  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert set(zmqengine.__all__) == NAMES
    assert len(NAMES) <= 15


def test_every_public_name_is_there_and_documented() -> None:
    for name in NAMES:
        assert getattr(zmqengine, name).__doc__, name
