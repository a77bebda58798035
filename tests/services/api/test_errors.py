"""Error objects and how values are quoted in them."""

from __future__ import annotations

import json

import pytest

from services.api.errors import ApiError, BackendError, from_backend, summary


def test_a_server_error_has_the_request_id_and_a_clients_error_has_not() -> None:
    assert ApiError(500, "m").body("r")["error"]["request_id"] == "r"
    assert "request_id" not in ApiError(400, "m").body("r")["error"]


def test_a_message_that_quotes_half_a_character_can_be_sent() -> None:
    body = ApiError(400, "it is '\ud83d'").body("r")

    assert json.dumps(body, ensure_ascii=False).encode()


def test_the_field_is_named_in_the_message_though_the_backend_did_not() -> None:
    error = from_backend(BackendError("invalid_argument", "too long", field="x"), lambda field: "prompt")

    assert error.message == "'prompt': too long"


def test_a_retry_is_never_asked_for_in_less_than_a_second() -> None:
    assert from_backend(BackendError("overloaded", "full", retry_after_s=0.0)).headers == {"retry-after": "1"}
    assert from_backend(BackendError("overloaded", "full", retry_after_s=1.2)).headers == {"retry-after": "2"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (10**30, "a huge number"),
        ("x" * 100, f"'{'x' * 40}...'"),
        ({"a": 1}, "an object"),
        ([1], "a list"),
    ],
)
def test_a_value_is_quoted_shortly(value: object, text: str) -> None:
    assert summary(value) == text
