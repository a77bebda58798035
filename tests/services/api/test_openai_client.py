"""The openai client, unmodified, against the application on a real port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from services.api.app import AppSettings, create_app
from services.api.errors import BackendError
from services.api.gate import Gate
from services.api.health_probe import HealthError, probe_health
from services.api.listener import listening_socket, url_of
from services.api.server import HttpServer

from .fake_backend import NEVER, FakeBackend, delta

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Count."}]


class ServerThread:
    """The server on a loop of its own."""

    def __init__(self) -> None:
        self.backend = FakeBackend()
        self.gate = Gate()
        self.url = ""
        self.loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._down = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self.loop.run_until_complete(self._serve()), daemon=True)
        self._thread.start()
        assert self._up.wait(10)

    async def _serve(self) -> None:
        listener = listening_socket("127.0.0.1", 0, "api")
        self.url = url_of("127.0.0.1", listener)
        server = HttpServer(create_app(self.backend, AppSettings("1"), self.gate), listener, keep_alive_s=5)
        await server.start()
        await probe_health(self.url, timeout_s=5)
        self._up.set()
        await self._down.wait()
        await server.stop(1)

    def wait_for(self, event: asyncio.Event) -> None:
        async def waited() -> None:
            async with asyncio.timeout(5):
                await event.wait()

        asyncio.run_coroutine_threadsafe(waited(), self.loop).result(10)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._down.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self.loop.close()


@pytest.fixture
def server() -> Iterator[ServerThread]:
    thread = ServerThread()
    yield thread
    thread.close()


@pytest.fixture
def client(server: ServerThread) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_whole_and_streamed_is_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=4)
    chunks = list(
        client.chat.completions.create(
            model="smollm2", messages=MESSAGES, max_tokens=4, stream=True, stream_options={"include_usage": True}
        )
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    assert whole.choices[0].message.content == streamed == "0, 1, 2, 3, "
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert chunks[-1].usage == whole.usage
    assert whole.usage.completion_tokens == 4


def test_a_completion_whole_and_streamed_is_the_same(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="smollm2", prompt="x", max_tokens=4, logprobs=2)
    chunks = list(client.completions.create(model="smollm2", prompt="x", max_tokens=4, stream=True))

    assert whole.choices[0].text == "".join(chunk.choices[0].text for chunk in chunks) == "0, 1, 2, 3, "
    assert whole.choices[0].logprobs is not None
    assert whole.choices[0].logprobs.text_offset == [0, 3, 6, 9]


def test_the_stream_helper_accumulates_the_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="smollm2", messages=MESSAGES, stop=["3"], n=2) as stream:
        stream.until_done()
        final = stream.get_final_completion()

    assert [choice.message.content for choice in final.choices] == ["0, 1, 2, "] * 2


def test_the_asynchronous_client_has_many_requests_at_a_time(server: ServerThread) -> None:
    async def scenario() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

            async def whole(number: int) -> int:
                answer = await client.chat.completions.create(
                    model="smollm2", messages=MESSAGES, max_completion_tokens=number + 1
                )
                assert answer.usage is not None
                return answer.usage.completion_tokens

            async def streamed(number: int) -> int:
                stream = await client.completions.create(
                    model="smollm2", prompt="x", max_tokens=number + 1, stream=True
                )
                return len([chunk async for chunk in stream])

            assert await asyncio.gather(*map(whole, range(16))) == list(range(1, 17))
            assert await asyncio.gather(*map(streamed, range(16))) == list(range(1, 17))

    asyncio.run(scenario())


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["smollm2"]
    assert client.models.retrieve("smollm2").owned_by == "zmqengine"


def test_errors_are_of_the_clients_own_kinds(client: openai.OpenAI, server: ServerThread) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="smollm2", messages=MESSAGES, temperature=3)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    assert missing.value.code == "model_not_found"
    server.backend.script = (BackendError("overloaded", "full"),)
    with pytest.raises(openai.RateLimitError) as full:
        client.chat.completions.create(model="smollm2", messages=MESSAGES, stream=True)
    assert full.value.response.headers["retry-after"] == "1"


def test_an_error_in_the_middle_of_a_stream_is_raised(client: openai.OpenAI, server: ServerThread) -> None:
    server.backend.script = (delta(text="a"), BackendError("peer_lost", "the engine went away"))
    stream = client.chat.completions.create(model="smollm2", messages=MESSAGES, stream=True)

    with pytest.raises(openai.APIError, match="the engine went away"):
        list(stream)


def test_an_overloaded_server_is_asked_again(server: ServerThread) -> None:
    server.backend.down = BackendError("unavailable", "starting")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=1) as client:
        timer = threading.Timer(0.1, lambda: setattr(server.backend, "down", None))
        timer.start()
        answer = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=2)
        timer.join()

    assert answer.choices[0].finish_reason == "length"


def test_a_request_that_someone_ended_is_not_asked_again(server: ServerThread) -> None:
    server.backend.script = (delta(finish="abort"),)
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=3) as client,
        pytest.raises(openai.APIStatusError) as ended,
    ):
        client.chat.completions.create(model="smollm2", messages=MESSAGES)

    assert ended.value.code == "aborted"
    assert len(server.backend.requests) == 1


@pytest.mark.parametrize(
    "script", [(NEVER,), (delta(text="a"), NEVER)], ids=["before the first token", "in the middle"]
)
@pytest.mark.parametrize("stream", [b"true", b"false"])
def test_a_client_that_hangs_up_frees_the_backend(
    server: ServerThread, script: tuple[object, ...], stream: bytes
) -> None:
    server.backend.script = script
    body = b'{"model": "smollm2", "prompt": "x", "stream": ' + stream + b"}"
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(server.url.removeprefix("http://").split(":")) as connection:  # type: ignore[arg-type]
        connection.sendall(head % len(body) + body)
        server.wait_for(server.backend.begun)
    server.wait_for(server.backend.closed)

    assert server.backend.open == 0


def test_a_body_above_the_limit_is_answered_while_the_client_still_sends(server: ServerThread) -> None:
    length = 12 * 1024 * 1024
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(server.url.removeprefix("http://").split(":")) as connection:  # type: ignore[arg-type]
        connection.sendall(head % length)
        connection.sendall(b"x" * length)
        status_line = connection.recv(12)

    assert status_line == b"HTTP/1.1 413"


def test_a_server_that_is_not_there_is_not_healthy() -> None:
    with listening_socket("127.0.0.1", 0, "api") as silent:
        url = url_of("127.0.0.1", silent)
        with pytest.raises(HealthError, match="did not answer within"):
            asyncio.run(probe_health(url, timeout_s=0.1))
    with pytest.raises(HealthError, match="cannot be reached"):
        asyncio.run(probe_health(url, timeout_s=1))
