"""Routes about the server, and errors that no route of its own makes."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from services.api.errors import BackendError
from services.api.gate import Gate

from .fake_backend import FakeBackend

pytestmark = pytest.mark.anyio


async def test_the_served_model_is_listed_and_found_by_name(client: httpx.AsyncClient) -> None:
    (model,) = (await client.get("/v1/models")).json()["data"]

    assert model == {
        "id": "smollm2", "object": "model", "created": 1700000000, "owned_by": "zmqengine", "max_model_len": 2048,
    }  # fmt: skip
    assert (await client.get("/v1/models/smollm2")).json() == model


@pytest.mark.parametrize("name", ["gpt", "org/model", "smollm2/", "%F0%9F%8C%8D"])
async def test_another_model_is_not_found(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(f"/v1/models/{name}")

    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "model"


async def test_it_is_alive_but_not_ready_while_something_is_missing(
    client: httpx.AsyncClient, backend: FakeBackend
) -> None:
    assert (await client.get("/ready")).json() == {"status": "ready"}
    backend.down = BackendError("unavailable", "worker is restarting")
    ready = await client.get("/ready")

    assert ready.status_code == 503
    assert "worker" in ready.json()["error"]["message"]
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/v1/models")).status_code == 503


async def test_the_version_is_told(client: httpx.AsyncClient) -> None:
    assert (await client.get("/version")).json() == {"version": "1.2.3"}


async def test_text_becomes_tokens_and_text_again(client: httpx.AsyncClient) -> None:
    tokens = (await client.post("/tokenize", json={"prompt": "ab", "add_special_tokens": False})).json()

    assert tokens == {"count": 2, "max_model_len": 2048, "tokens": [97, 98]}
    assert (await client.post("/detokenize", json={"tokens": tokens["tokens"]})).json() == {"prompt": "ab"}


async def test_a_conversation_gets_no_special_tokens_beside_its_templates(client: httpx.AsyncClient) -> None:
    body = {"model": "smollm2", "messages": [{"role": "user", "content": "x"}]}
    tokens = (await client.post("/tokenize", json=body)).json()["tokens"]

    assert "".join(map(chr, tokens)) == "user: x\n"


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "prompt"),
        ("/tokenize", {"prompt": 1}, 400, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": []}, 400, "prompt"),
        ("/tokenize", {"messages": [{"role": "wizard"}]}, 400, "messages"),
        ("/tokenize", {"prompt": "x", "model": "gpt"}, 404, "model"),
        ("/tokenize", {"prompt": "x", "return_token_strs": True}, 400, "return_token_strs"),
        ("/detokenize", {"tokens": [49152]}, 400, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, 400, "tokens"),
    ],
)
async def test_wrong_tokens_are_refused(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = await client.post(path, json=body)

    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("POST", "/health", 405),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/chat/completions/", 404),
        ("OPTIONS", "/v1/completions", 405),
    ],
)
async def test_a_route_that_is_not_there_is_an_error_object(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await client.request(method, path)

    assert answer.status_code == status
    assert path in answer.json()["error"]["message"]
    assert status != 405 or answer.headers["allow"]


async def test_another_origin_is_allowed_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/models", headers={"origin": "http://evil.example"})

    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("given", ["r-1", "x" * 128])
async def test_a_request_id_is_echoed(client: httpx.AsyncClient, given: str) -> None:
    assert (await client.get("/nothing", headers={"x-request-id": given})).headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 129, "a b", "a\tb"])
async def test_a_request_id_that_is_none_is_replaced(client: httpx.AsyncClient, given: str) -> None:
    made = (await client.get("/health", headers={"x-request-id": given})).headers["x-request-id"]

    assert made != given
    assert len(made) == 32


async def test_a_bug_is_answered_without_internals_and_logged_with_the_request_id(
    client: httpx.AsyncClient, backend: FakeBackend, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken() -> Any:
        raise ZeroDivisionError("secret")

    backend.model = broken  # type: ignore[method-assign]
    body = {"model": "smollm2", "prompt": "x"}
    with caplog.at_level(logging.ERROR):
        answer = await client.post("/v1/completions", json=body, headers={"x-request-id": "r-7"})

    assert answer.status_code == 500
    assert answer.json()["error"]["request_id"] == "r-7"
    assert "secret" not in answer.text
    assert "r-7" in caplog.text
    assert "secret" in caplog.text
    assert gate.counts.failed == 1


async def test_the_counts_say_how_requests_ended(client: httpx.AsyncClient, backend: FakeBackend, gate: Gate) -> None:
    body = {"model": "smollm2", "prompt": "x"}
    await client.post("/v1/completions", json=body)
    await client.post("/v1/completions", json=body | {"n": 0})
    backend.script = (BackendError("internal", "x"),)
    await client.post("/v1/completions", json=body)
    await client.get("/health")

    assert (gate.counts.served, gate.counts.refused, gate.counts.failed, gate.in_flight) == (1, 1, 1, 0)


async def test_while_draining_new_work_is_refused_and_questions_are_answered(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    gate.drain()
    answer = await client.post("/v1/completions", json={"model": "smollm2", "prompt": "x"})

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["connection"] == "close"
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/ready")).status_code == 503
    assert await gate.idle(0.1)


async def test_every_body_is_in_the_openapi_document(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    bodies = {
        path: operation["post"]["requestBody"]["content"]["application/json"]["schema"]
        for path, operation in document["paths"].items()
        if "post" in operation
    }

    assert set(bodies) == {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}
    assert schemas["ChatRequest"]["properties"]["temperature"]["anyOf"][0]["maximum"] == 2
    assert schemas["ChatRequest"]["additionalProperties"] is False
    assert not _dangling(document, schemas)


def _dangling(node: Any, schemas: dict[str, Any]) -> list[str]:
    if isinstance(node, list):
        return [ref for item in node for ref in _dangling(item, schemas)]
    if not isinstance(node, dict):
        return []
    ref = node.get("$ref")
    own = [ref] if isinstance(ref, str) and ref.rpartition("/")[2] not in schemas else []
    return own + [ref for item in node.values() for ref in _dangling(item, schemas)]


def test_every_field_of_a_request_that_does_something_is_documented(app: FastAPI) -> None:
    fields = app.openapi()["components"]["schemas"]["ChatRequest"]["properties"]
    unsupported = {name for name, field in fields.items() if "description" not in field}

    assert {"temperature", "stop", "messages", "logit_bias", "seed"} & unsupported == set()
    assert {"tools", "audio", "guided_json"} <= unsupported
