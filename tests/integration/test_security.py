"""What a run keeps to its user, and whom it lets in from elsewhere."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from zmqengine import connect, envelope
from zmqengine.errors import ErrorBody, HandshakeFailed
from zmqengine.health import Hello
from zmqengine.transport import Link
from zmqengine.wire import Kind

from .runs import Runs, wait_until

A = {"name": "a", "impl": "Echo"}
ON_TCP = {**A, "bind": "tcp://127.0.0.1:0", "curve": True}
RELAY = {"name": "r", "impl": "Relay"}


@pytest.fixture
def secured(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs whose user has a folder of keys, that is nobody's yet."""
    monkeypatch.setenv("ZMQENGINE_RUNTIME_DIR", str(runs.base))
    for environ in (os.environ, runs.environ):
        monkeypatch.setitem(environ, "ZMQENGINE_HOME", str(runs.base / "home"))  # type: ignore[arg-type]
    return runs


def public_key(runs: Runs, *args: str) -> str:
    return runs.run("keys", *args).stdout.strip()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_a_run_keeps_is_its_users_alone_whatever_the_umask(secured: Runs) -> None:
    secured.run("keys", "generate", "--run", "default")
    before = os.umask(0)
    try:
        secured.run("up", secured.table(A), "--detach")
    finally:
        os.umask(before)
    run = secured.base / "default"
    found = {path.relative_to(run): path for path in run.rglob("*")}
    assert {"broker", "state.json", "lock", "logs/a.log", "keys/pair.json"} <= {str(name) for name in found}
    for name, path in {Path("."): run, **found}.items():
        assert mode(path) == (0o700 if path.is_dir() else 0o600), name
    secured.run("down")


def test_a_row_on_tcp_is_refused_before_anything_starts_where_keys_are_missing(secured: Runs) -> None:
    table = secured.table(A, {**ON_TCP, "name": "b"})
    refused = secured.run("up", table, ok=False)
    assert refused.returncode == 1
    assert "service 'b': tcp://127.0.0.1:0 needs CURVE keys" in refused.stderr
    assert "zmqengine keys generate" in refused.stderr
    secured.run("keys", "generate")
    refused = secured.run("up", table, "--detach", ok=False)
    assert "needs a list of who may connect" in refused.stderr
    assert not (secured.base / "default").exists()


def test_services_of_a_run_find_one_on_tcp_and_who_is_not_allowed_does_not(secured: Runs) -> None:
    server = public_key(secured, "generate", "--run", "default")
    stranger = public_key(secured, "generate")
    secured.run("keys", "allow", public_key(secured, "generate", "--run", "other"), "--run", "default")
    secured.run("up", secured.table(ON_TCP, RELAY), "--detach")
    endpoint = secured.services()["a"]["endpoint"]
    assert endpoint.startswith("tcp://127.0.0.1:")
    with connect("r") as relay:
        assert relay.relay(text="over tcp") == "over tcp"
    with connect("a") as client:  # by name: with the run's own keys
        assert client.echo(text="x") == "x"
    call = ["call", endpoint, "echo", "text=x", "--server-key", server]
    refused = secured.run(*call, ok=False)  # the user's keys
    assert f"zmqengine keys allow '{stranger}'" in refused.stderr
    secured.run("keys", "allow", stranger, "--name", "me", "--run", "default")
    assert json.loads(secured.run(*call).stdout) == "x"
    secured.run("keys", "revoke", "me", "--run", "default")
    with pytest.raises(HandshakeFailed), connect(endpoint, server_key=server) as client:
        client.describe()
    assert "refused a connection from 127.0.0.1" in secured.run("logs", "a").stdout
    wait_until(lambda: secured.services()["a"]["refused"] >= 2)
    swapped = json.loads(secured.run("swap", "a", "--json").stdout)
    assert swapped["old"] != swapped["new"]
    with connect("r") as relay:
        assert relay.relay(text="the next one") == "the next one"
    secured.run("down")


# The token of a HELLO


class Impostor:
    """A process that has come to know what the launcher told a service, and speaks to the broker in its place."""

    def __init__(self, runs: Runs, service: str) -> None:
        self.service = runs.services()[service]
        self.environ = psutil.Process(self.service["pid"]).environ()
        self.link = Link(self.environ["ZMQENGINE_BROKER"], "broker")

    def hello(self, **other: Any) -> tuple[Kind, str]:
        """Kind and text of the answer to the service's HELLO, changed so."""
        hello = Hello(
            name=self.service["name"], pid=os.getpid(), incarnation=self.service["incarnation"],
            token=self.environ["ZMQENGINE_TOKEN"], data="ipc:///tmp/elsewhere", control="ipc:///tmp/elsewhere",
            protocol="echo/1",
        )  # fmt: skip
        frame = envelope.encode(Kind.HELLO, call_id=1, body=msgspec.structs.replace(hello, **other))
        wait_until(lambda: self.link.send(frame))
        kind, message = envelope.decode(wait_until(self.link.receive)[0])
        if kind is not Kind.ERROR:
            return kind, ""
        return kind, msgspec.msgpack.decode(message.body, type=ErrorBody).message


def test_a_token_is_good_for_one_connection_and_compared_whatever_it_is(secured: Runs) -> None:
    secured.run("up", secured.table(A), "--detach")
    impostor = Impostor(secured, "a")
    assert len(impostor.environ["ZMQENGINE_TOKEN"]) == 32
    assert impostor.hello() == (Kind.ERROR, "HELLO of a: its token is used up, by another connection")
    for wrong in ("", "0" * 32, "\u00e9" * 32, impostor.environ["ZMQENGINE_TOKEN"][:-1]):
        assert impostor.hello(token=wrong) == (Kind.ERROR, "HELLO of a: wrong token")
    impostor.link.close()
    with connect("a") as client:
        assert client.echo(text="still the same") == "still the same"
    secured.run("down")
