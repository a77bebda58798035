"""`zmqengine generate` and `zmqengine chat`: the running engine, from the terminal, without HTTP."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import click

from services.protocols.processor import (
    ChatMessage,
    ChatPrompt,
    GenerateText,
    ProcessorInterface,
    TextDelta,
    TextPrompt,
)
from services.protocols.sampling import SamplingParams
from zmqengine import Client, connect
from zmqengine.cli.options import print_json, run_option
from zmqengine.errors import RemoteError

NO_LIMIT = 2**30
"""Asks for as many tokens as the context has room for (with max_tokens_default)."""


def _sampling_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--max-tokens", type=click.IntRange(1), help="Tokens to generate at most.  [default: the context]"
        ),
        click.option(
            "--temperature", default=0.7, show_default=True, type=click.FloatRange(0, 100), help="0 is greedy."
        ),
        click.option("--top-p", default=1.0, show_default=True, type=click.FloatRange(0, 1, min_open=True)),
        click.option("--top-k", default=0, show_default=True, type=click.IntRange(0), help="0: all."),
        click.option("--min-p", default=0.0, show_default=True, type=click.FloatRange(0, 1)),
        click.option("--seed", type=int, help="Makes it repeatable."),
    ):
        function = option(function)
    return function


def sampling(
    max_tokens: int | None, temperature: float, top_p: float, top_k: int, min_p: float, seed: int | None
) -> SamplingParams:
    """The sampling parameters of the command line."""
    return SamplingParams(
        max_tokens=max_tokens or NO_LIMIT, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed
    )  # fmt: skip


def _stream(client: Client, request: GenerateText) -> Iterator[TextDelta]:
    yield from client.generate(request)


@click.command("generate")
@click.argument("prompt", required=False)
@click.option("--raw", is_flag=True, help="Continue the text as it is, without the chat template.")
@click.option("--system", help="System message.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when it is complete.")
@_sampling_options
@run_option
def generate(prompt: str | None, raw: bool, system: str | None, as_json: bool, run: str, **given: object) -> None:
    """Generate text for PROMPT (or standard input) with the running engine, and print it as it comes."""
    if raw and system:
        raise click.UsageError("--system has no place in a --raw text")
    if prompt is None:
        if sys.stdin.isatty():
            raise click.UsageError("no PROMPT was given, and standard input is a terminal")
        prompt = sys.stdin.read()
    if raw:
        asked: TextPrompt | ChatPrompt = TextPrompt(text=prompt)
    else:
        messages = [ChatMessage(role="system", content=system)] if system else []
        asked = ChatPrompt(messages=[*messages, ChatMessage(role="user", content=prompt)])
    request = GenerateText(
        request_id=f"generate-{uuid.uuid4().hex}", prompt=asked, sampling=sampling(**given),  # type: ignore[arg-type]
        max_tokens_default=given["max_tokens"] is None,
    )  # fmt: skip
    parts: list[str] = []
    last: TextDelta | None = None
    with connect("processor", ProcessorInterface, run=run) as client:
        for delta in _stream(client, request):
            last = delta
            parts.append(delta.text)
            if not as_json:
                click.echo(delta.text, nl=False)
    if as_json:
        answer = {"text": "".join(parts), "finish_reason": None, "prompt_tokens": 0, "completion_tokens": 0}
        if last is not None:
            answer["finish_reason"] = last.finish_reason
            answer["prompt_tokens"] = last.prompt_tokens
            answer["completion_tokens"] = last.token_count
        print_json(answer)
    else:
        click.echo()
    if last is not None and last.error:
        raise click.ClickException(last.error)


@click.command("chat")
@click.option("--system", help="System message.")
@_sampling_options
@run_option
def chat(system: str | None, run: str, **given: object) -> None:
    """Talk with the running engine. Ctrl-C stops an answer, Ctrl-D ends the conversation, /new begins another."""
    start = [ChatMessage(role="system", content=system)] if system else []
    messages = list(start)
    params = sampling(**given)  # type: ignore[arg-type]
    with connect("processor", ProcessorInterface, run=run) as client:
        click.secho(f"{client.model().name} (Ctrl-D ends, /new begins anew)", dim=True)
        while True:
            try:
                text = click.prompt(click.style("you", fg="cyan"), prompt_suffix="> ")
            except click.exceptions.Abort:
                click.echo()
                return
            if text.strip() == "/new":
                messages = list(start)
                continue
            asked = [*messages, ChatMessage(role="user", content=text)]
            request = GenerateText(
                request_id=f"chat-{uuid.uuid4().hex}", prompt=ChatPrompt(messages=asked), sampling=params,
                max_tokens_default=given["max_tokens"] is None,
            )  # fmt: skip
            answer = _answer(client, request)
            if answer is not None:
                messages = [*asked, ChatMessage(role="assistant", content=answer)]


def _answer(client: Client, request: GenerateText) -> str | None:
    """Print an answer as it comes; Ctrl-C ends the answer, not the program. The text for the history, which a question
    that failed has no place in: None."""
    parts: list[str] = []
    failed = False
    stream = _stream(client, request)
    try:
        for delta in stream:
            parts.append(delta.text)
            click.echo(delta.text, nl=False)
            if delta.error:
                failed = True
                click.secho(f"\n{delta.error}", fg="red", err=True)
    except KeyboardInterrupt:
        click.secho(" (stopped)", dim=True, nl=False)
    except RemoteError as error:  # the processor's answer: the next question may fare better
        failed = True
        click.secho(f"\n{error}", fg="red", err=True)
    finally:
        stream.close()  # type: ignore[attr-defined]  # cancels the request, so that the engine does not go on
    click.echo()
    return None if failed else "".join(parts)
