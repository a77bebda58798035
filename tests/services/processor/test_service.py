"""The processor over real sockets, with a real scheduler and an engine that repeats its prompts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from services.protocols.processor import ChatMessage, ChatPrompt, GenerateText, TextPrompt, TokenPrompt
from services.protocols.sampling import SamplingParams
from zmqengine.errors import InvalidArgument, Overloaded

from ..engine.processes import eventually
from .chain import Chain, Collected, collect, follow, text, turn_until
from .gguf_vocabulary import TOKENS, write_vocabulary


def test_a_text_goes_through_the_chain_and_leaves_nothing_behind(chain: Chain) -> None:
    client = chain.all()
    collected = collect(client, text("the 🌍 ", 14))

    assert collected.texts == {0: "the 🌍 the 🌍 "}
    last = collected.last[0]
    assert (last.finish_reason, last.token_count, last.prompt_tokens) == ("length", 14, 7)
    (asked,) = chain.engine_seen().requests
    assert (asked.request_id, asked.prompt_token_ids[0]) == ("r/0", TOKENS.index("the"))
    eventually(chain.is_idle)
    assert chain.placed().admitted_total == 1


def test_a_conversation_is_rendered_and_n_completions_count_as_n(chain: Chain) -> None:
    client = chain.all()
    prompt = ChatPrompt(messages=[ChatMessage(role="user", content="hi")])
    request = GenerateText(request_id="r", prompt=prompt, sampling=SamplingParams(max_tokens=8, seed=5), n=3)

    assert collect(client, request).texts == dict.fromkeys(range(3), "[user]hi")
    assert sorted(asked.sampling.seed or 0 for asked in chain.engine_seen().requests) == [5, 6, 7]
    eventually(chain.is_idle)
    assert chain.placed().admitted_total == 3


def test_a_stop_string_ends_the_engine_s_work(chain: Chain) -> None:
    client = chain.all(token_s=0.005)
    collected = collect(client, text("abSTOP", 5000, stop=["STOP"]))

    assert (collected.texts, collected.last[0].stop_reason) == ({0: "ab"}, "STOP")
    eventually(chain.is_idle)


@pytest.mark.parametrize(
    ("request_", "field", "message"),
    [
        (text("", 1), "request.prompt", "nothing to go on from"),
        (text("a" * 10_000, 1), "request.prompt", "context is 10000"),
        (text("a" * 70_000, 1), "request.prompt", "at least 11666"),
        (text("a", 10_000), "request.sampling.max_tokens", "together 10001"),
        (text("a", 1, stop=["a"] * 17), "request.stop", "17 strings; 16"),
        (GenerateText(request_id="r", prompt=TokenPrompt(token_ids=[262]), sampling=SamplingParams(max_tokens=1)),
         "request.prompt", "token id 262"),
        (GenerateText(request_id="r", sampling=SamplingParams(max_tokens=1), prompt=ChatPrompt(
            messages=[ChatMessage(role="user", content="a")], tools=[{}])), "request.prompt.tools", "knows no tools"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_its_field_before_anything_is_asked(
    chain: Chain, request_: GenerateText, field: str, message: str
) -> None:
    client = chain.all()
    with pytest.raises(InvalidArgument, match=message) as refused:
        collect(client, request_)
    assert refused.value.field == field
    assert chain.engine_seen().requests == []
    assert chain.placed().admitted_total == 0


def test_a_default_of_max_tokens_is_cut_to_the_context(chain: Chain) -> None:
    client = chain.all(max_context=10)
    assert collect(client, text("abcd", 2**30, max_tokens_default=True)).last[0].token_count == 6


def test_the_engine_s_refusal_is_the_client_s_and_frees_the_place(chain: Chain) -> None:
    client = chain.all(refuse=True)
    with pytest.raises(InvalidArgument, match="refused, as it was told to"):
        collect(client, text("a", 1))
    assert len(chain.engine_seen().requests) == 1, "it is not asked again"
    eventually(chain.is_idle)


def test_an_error_of_one_completion_is_told_in_its_last_delta(chain: Chain) -> None:
    client = chain.all(finish="error")
    last = collect(client, text("ab", 3)).last[0]
    assert (last.finish_reason, last.error, last.token_count) == ("error", "failed, as it was told to", 3)


def test_want_of_room_is_told_with_a_time(chain: Chain) -> None:
    chain.scheduler(max_placed=1, max_queued=1)
    chain.stand_in(token_s=0.01)
    chain.processor()
    client = chain.asker()
    _, first = follow(client, text("a", 5000, "first"))
    turn_until(client, lambda: first.texts)
    follow(client, text("a", 5000, "second"))
    turn_until(client, lambda: chain.placed().queued == 1)

    with pytest.raises(Overloaded) as refused:
        collect(client, text("a", 5000, "third"))
    assert refused.value.retry_after_s is not None
    assert refused.value.retry_after_s > 0


def test_a_slow_reader_gets_its_text_in_few_deltas_and_keeps_nobody_waiting(chain: Chain) -> None:
    slow, quick = chain.all(), chain.asker()
    stream, collected = follow(slow, text("ab🌍", 3000))
    while slow._connection.wants_write:
        slow.turn(time.monotonic() + 0.1)
    eventually(chain.is_idle)  # generated to the end, though nobody reads

    assert collect(quick, text("ab", 4, "quick")).texts == {0: "abab"}
    turn_until(slow, lambda: stream.ended)
    assert stream.error is None
    assert collected.texts == {0: "ab🌍" * 500}
    assert len(collected.deltas) < 500


def test_the_card_says_what_is_served(chain: Chain) -> None:
    chain.scheduler()
    chain.stand_in(max_context=123)
    chain.processor(served_name="mine")
    card = chain.asker().model()
    assert (card.name, card.path, card.max_context, card.vocab_size) == ("mine", str(chain.model), 123, 262)
    assert (card.has_chat_template, card.created) == (True, int(chain.model.stat().st_mtime))


def test_prompts_are_tokenized_and_token_ids_written_out(chain: Chain) -> None:
    client = chain.all()
    ids = client.tokenize(TextPrompt(text="the🌍<tool>"))
    assert (ids[0], ids[-1], len(ids)) == (TOKENS.index("the"), TOKENS.index("<tool>"), 6)
    assert client.detokenize(ids) == "the🌍<tool>"
    assert client.detokenize(ids[:2]) == "the\ufffd"
    assert client.detokenize([]) == ""
    chat = ChatPrompt(messages=[ChatMessage(role="user", content="a")])
    assert client.detokenize(client.tokenize(chat)) == "[user]a"
    assert client.tokenize(TokenPrompt(token_ids=[0, 1])) == [0, 1]


def test_what_cannot_be_tokenized_is_refused_by_its_argument(chain: Chain) -> None:
    client = chain.all()
    with pytest.raises(InvalidArgument, match="token id 262") as unknown:
        client.tokenize(TokenPrompt(token_ids=[0, 262]))
    assert unknown.value.field == "prompt"
    with pytest.raises(InvalidArgument, match="knows no tools") as tools:
        client.tokenize(ChatPrompt(messages=[ChatMessage(role="user", content="a")], tools=[{}]))
    assert tools.value.field == "prompt.tools"
    with pytest.raises(InvalidArgument, match="token id -1") as negative:
        client.detokenize([0, -1])
    assert negative.value.field == "token_ids"


def test_a_long_prompt_is_read_beside_the_loop_with_the_same_outcome(chain: Chain) -> None:
    chain.scheduler()
    chain.stand_in()
    chain.processor(thread_characters=0)
    client = chain.asker()
    assert collect(client, text("ab🌍", 12)).texts == {0: "ab🌍ab🌍"}
    assert client.detokenize(client.tokenize(TextPrompt(text="the"))) == "the"
    with pytest.raises(InvalidArgument) as refused:
        collect(client, text("", 1))
    assert refused.value.field == "request.prompt"
    stream, _ = follow(client, text("a" * 9000, 900))
    client.turn(time.monotonic() + 0.001)
    stream.cancel()  # while it is being read, perhaps
    turn_until(client, chain.is_idle)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "gpt-7"}, "option model='gpt-7'"),
        ({"model": "/nowhere/m.gguf"}, "/nowhere/m.gguf"),
        ({"chat_template": "/nowhere/t.jinja"}, "/nowhere/t.jinja: cannot be read"),
        ({"retries": -1}, "retries"),
    ],
)
def test_a_wrong_option_ends_the_start_with_its_name(chain: Chain, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AssertionError, match="not ready") as failed:
        chain.processor(**options)
    assert message in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_a_vocabulary_that_does_not_read_what_it_writes_is_found_before_it_serves(chain: Chain) -> None:
    tokens = ["HH" if token == "H" else token for token in TOKENS]
    model = write_vocabulary(chain.base / "broken.gguf", ggml_tokens=tokens)
    with pytest.raises(AssertionError, match="its tokenizer turns 'Hello"):
        chain.processor(model=model)


def test_requests_of_one_client_are_kept_apart(chain: Chain) -> None:
    client = chain.all()
    begun: list[tuple[Any, Collected]] = [follow(client, text(f"{i}ab", 30, f"r{i}")) for i in range(10)]
    turn_until(client, lambda: all(stream.ended for stream, _ in begun))
    assert [collected.texts[0] for _, collected in begun] == [f"{i}ab" * 10 for i in range(10)]
