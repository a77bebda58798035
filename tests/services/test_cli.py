"""`zmqengine generate` and `zmqengine chat`: wrong arguments, no run, and what they ask and print."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from services import cli
from services.protocols.processor import ChatPrompt, GenerateText, ModelCard, TextDelta, TextPrompt
from zmqengine.errors import Overloaded


class FakeClient:
    """A processor that answers with what the test says."""

    def __init__(self) -> None:
        self.requests: list[GenerateText] = []
        self.answers: list[list[TextDelta | BaseException]] = []
        self.closed_streams = 0

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def model(self) -> ModelCard:
        return ModelCard(
            name="tiny", path="/m", max_context=9, vocab_size=9, has_chat_template=True, created=0
        )  # fmt: skip

    def generate(self, request: GenerateText) -> Iterator[TextDelta]:
        self.requests.append(request)
        try:
            for answer in self.answers.pop(0) if self.answers else [delta("hi", finish_reason="stop")]:
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
        finally:
            self.closed_streams += 1


def delta(text: str, **fields: Any) -> TextDelta:
    return TextDelta(index=0, text=text, token_count=2, prompt_tokens=5, **fields)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()
    monkeypatch.setattr(cli, "connect", lambda name, interface, run: fake)
    return fake


def invoke(command: Any, *args: str, input: str | None = None) -> Result:
    return CliRunner().invoke(command, args, input=input)


def run_program(*args: str) -> subprocess.CompletedProcess[str]:
    """The program itself, as errors of the toolkit are reported by its main."""
    return subprocess.run(
        [sys.executable, "-m", "zmqengine.cli.main", *args],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--max-tokens", "0", "hi"], "--max-tokens"),
        (["--temperature", "-1", "hi"], "--temperature"),
        (["--temperature", "101", "hi"], "--temperature"),
        (["--top-p", "0", "hi"], "--top-p"),
        (["--top-p", "1.5", "hi"], "--top-p"),
        (["--top-k", "-1", "hi"], "--top-k"),
        (["--min-p", "2", "hi"], "--min-p"),
        (["--seed", "x", "hi"], "--seed"),
        (["hi", "there"], "unexpected extra argument"),
        (["--no-such-option", "hi"], "No such option"),
    ],
)
def test_wrong_arguments_are_refused_by_name_before_anything_is_connected(
    client: FakeClient, args: list[str], message: str
) -> None:
    result = invoke(cli.generate, *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert client.requests == []


def test_without_a_prompt_a_terminal_is_not_read(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True)
    result = invoke(cli.generate)
    assert result.exit_code == 2
    assert "no PROMPT was given" in result.stderr


def test_a_system_message_has_no_place_in_a_raw_text(client: FakeClient) -> None:
    result = invoke(cli.generate, "--raw", "--system", "be kind", "hi")
    assert result.exit_code == 2
    assert "--system" in result.stderr
    assert client.requests == []


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_a_run_that_is_not_up_is_said_in_one_line(command: str) -> None:
    args = [command, "--run", "no-such-run-at-all", *(["hi"] if command == "generate" else [])]
    result = run_program(*args)
    assert result.returncode == 1
    assert "no-such-run-at-all" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_prompt_is_a_conversation_of_one_message_as_long_as_the_context(client: FakeClient) -> None:
    assert invoke(cli.generate, "hello", "--system", "be kind").exit_code == 0
    (request,) = client.requests
    assert isinstance(request.prompt, ChatPrompt)
    assert [(m.role, m.content) for m in request.prompt.messages] == [("system", "be kind"), ("user", "hello")]
    assert request.max_tokens_default


def test_a_raw_prompt_is_the_text_itself_and_may_come_from_standard_input(client: FakeClient) -> None:
    invoke(cli.generate, "--raw", input="once upon\n")
    assert client.requests[0].prompt == TextPrompt(text="once upon\n")


def test_sampling_options_are_passed_on(client: FakeClient) -> None:
    invoke(
        cli.generate,
        "hi",
        "--max-tokens",
        "7",
        "--temperature",
        "0",
        "--top-p",
        "0.5",
        "--top-k",
        "3",
        "--min-p",
        "0.1",
        "--seed",
        "4",
    )
    sampling = client.requests[0].sampling
    assert (
        sampling.max_tokens,
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.min_p,
        sampling.seed,
    ) == (
        7,
        0.0,
        0.5,
        3,
        0.1,
        4,
    )
    assert not client.requests[0].max_tokens_default


def test_each_request_has_an_id_of_its_own(client: FakeClient) -> None:
    for _ in range(2):
        invoke(cli.generate, "hi")
    assert len({request.request_id for request in client.requests}) == 2


def test_text_is_printed_as_it_comes(client: FakeClient) -> None:
    client.answers = [[delta("a 🌍"), delta(" b", finish_reason="stop")]]
    result = invoke(cli.generate, "hi")
    assert (result.exit_code, result.stdout) == (0, "a 🌍 b\n")


def test_json_is_one_object_when_it_is_complete(client: FakeClient) -> None:
    client.answers = [[delta("a"), delta("b", finish_reason="length")]]
    result = invoke(cli.generate, "hi", "--json")
    assert json.loads(result.stdout) == {
        "text": "ab", "finish_reason": "length", "prompt_tokens": 5, "completion_tokens": 2,
    }  # fmt: skip


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_generation_that_fails_exits_with_the_reason(client: FakeClient, flags: list[str]) -> None:
    client.answers = [[delta("a"), delta("", finish_reason="error", error="the weights are NaN")]]
    result = invoke(cli.generate, "hi", *flags)
    assert result.exit_code == 1
    assert "the weights are NaN" in result.stderr
    assert "a" in result.stdout


def test_an_error_ends_generate_and_the_stream(client: FakeClient) -> None:
    client.answers = [[delta("a"), Overloaded("processor: full")]]
    result = invoke(cli.generate, "hi")
    assert isinstance(result.exception, Overloaded)
    assert client.closed_streams == 1


def contents(request: GenerateText) -> list[tuple[str, str | None]]:
    assert isinstance(request.prompt, ChatPrompt)
    return [(message.role, message.content) for message in request.prompt.messages]


def test_a_chat_remembers_what_was_said_until_a_new_one_begins(client: FakeClient) -> None:
    client.answers = [[delta("fi"), delta("ne", finish_reason="stop")]]
    result = invoke(cli.chat, "--system", "be kind", input="how are you\nand now\n/new\nhello\n")
    assert result.exit_code == 0, result.output
    start = [("system", "be kind")]
    assert [contents(request) for request in client.requests] == [
        [*start, ("user", "how are you")],
        [*start, ("user", "how are you"), ("assistant", "fine"), ("user", "and now")],
        [*start, ("user", "hello")],
    ]
    assert "fine" in result.stdout
    assert "tiny" in result.stdout


def test_the_end_of_input_ends_a_chat(client: FakeClient) -> None:
    result = invoke(cli.chat, input="")
    assert (result.exit_code, client.requests) == (0, [])


def test_an_interrupt_stops_the_answer_and_not_the_chat(client: FakeClient) -> None:
    client.answers = [[delta("half an"), KeyboardInterrupt()]]
    result = invoke(cli.chat, input="hi\ngo on\n")
    assert result.exit_code == 0, result.output
    assert "(stopped)" in result.stdout
    assert contents(client.requests[1]) == [("user", "hi"), ("assistant", "half an"), ("user", "go on")]
    assert client.closed_streams == 2


Trouble = Callable[[], "TextDelta | BaseException"]


@pytest.mark.parametrize(
    "trouble",
    [lambda: Overloaded("processor: full"), lambda: delta("", finish_reason="error", error="processor: full")],
    ids=["refused", "failed"],
)
def test_a_question_that_fails_is_told_and_forgotten_and_the_chat_goes_on(client: FakeClient, trouble: Trouble) -> None:
    client.answers = [[trouble()]]
    result = invoke(cli.chat, input="hi\nagain\n")
    assert result.exit_code == 0, result.output
    assert "processor: full" in result.stderr
    assert contents(client.requests[1]) == [("user", "again")]
