"""The listening socket, and what is said of one that cannot be had."""

from __future__ import annotations

import socket

import pytest

from services.api.listener import ListenError, listening_socket, url_of


def test_port_zero_takes_a_free_port() -> None:
    with listening_socket("127.0.0.1", 0, "api") as one, listening_socket("127.0.0.1", 0, "api") as two:
        assert one.getsockname()[1] not in (0, two.getsockname()[1])
        assert url_of("127.0.0.1", one) == f"http://127.0.0.1:{one.getsockname()[1]}"


def test_a_port_in_use_is_named_with_its_option() -> None:
    with listening_socket("127.0.0.1", 0, "api") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"api\.port: port {port} on 127\.0\.0\.1 is in use.*--set api\.port="):
            listening_socket("127.0.0.1", port, "api")


def test_a_port_is_taken_over_from_connections_that_linger() -> None:
    first = listening_socket("127.0.0.1", 0, "api")
    port = first.getsockname()[1]
    first.setblocking(True)
    with socket.create_connection(("127.0.0.1", port)) as client:
        served, _ = first.accept()
        served.close()  # the server closes first: its end goes to TIME_WAIT
        assert client.recv(1) == b""
    first.close()

    listening_socket("127.0.0.1", port, "api").close()


@pytest.mark.parametrize(("host", "said"), [("no.such.host.invalid", "api.host"), ("192.0.2.1", "api.host")])
def test_an_address_that_is_not_ours_is_named(host: str, said: str) -> None:
    with pytest.raises(ListenError, match=said):
        listening_socket(host, 0, "api")


def test_a_wildcard_is_reached_over_the_loopback() -> None:
    with listening_socket("0.0.0.0", 0, "api") as listener:
        assert url_of("0.0.0.0", listener).startswith("http://127.0.0.1:")
