from __future__ import annotations

import pytest

from services.engine.limits import Limits, Options
from services.engine.refusal import NeverFits
from services.engine.request import Request

from .fake_worker import worker_info
from .simulation import message


def request(prompt: list[int], max_tokens: int, generated: list[int] | None = None) -> Request:
    asked = message("r", prompt, max_tokens)
    return Request("r", [*prompt, *(generated or [])], len(prompt), asked.sampling, 0, 0.0, 0)


def limits(**worker: int) -> Limits:
    return Limits.of(Options(), worker_info(**worker))


def test_a_worker_that_takes_less_than_the_options_goes_before() -> None:
    options = Options(max_batched_tokens=100, max_seqs=3, watermark=0.01)

    small = Limits.of(options, worker_info(max_batched_tokens=7, max_seqs=2, num_blocks=150))
    large = Limits.of(options, worker_info(max_batched_tokens=700, max_seqs=20, num_blocks=100))

    assert (small.max_batched_tokens, small.max_seqs, small.watermark_blocks) == (7, 2, 2)
    assert (large.max_batched_tokens, large.max_seqs, large.watermark_blocks) == (100, 3, 1)


def test_blocks_are_counted_without_one_to_spare() -> None:
    held = limits(block_size=4)

    assert [held.blocks_for(tokens) for tokens in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


def test_what_just_fits_is_taken() -> None:
    limits(num_blocks=4, block_size=4, max_context=99).check(request([5] * 10, 6))
    limits(num_blocks=99, block_size=4, max_context=16).check(request([5] * 10, 6))


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "worker", "field", "words"),
    [
        (10, 7, {"max_context": 16, "num_blocks": 99}, "sampling.max_tokens", ["10", "7", "17", "context has 16"]),
        (10, 7, {"max_context": 99, "num_blocks": 4}, "sampling.max_tokens", ["17", "holds 16", "4 blocks of 4"]),
        (16, 1, {"max_context": 16, "num_blocks": 99}, "prompt_token_ids", ["16", "17", "shorten the prompt"]),
        (500, 1, {"max_context": 999, "num_blocks": 4}, "prompt_token_ids", ["500", "holds 16"]),
    ],
)
def test_what_never_fits_is_refused_with_the_numbers(
    prompt: int, max_tokens: int, worker: dict[str, int], field: str, words: list[str]
) -> None:
    with pytest.raises(NeverFits) as refusal:
        limits(block_size=4, **worker).check(request([5] * prompt, max_tokens))

    assert refusal.value.field == f"request.{field}"
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_a_token_outside_the_vocabulary_is_refused_with_its_place() -> None:
    held = limits(vocab_size=50)

    held.check(request([0, 49], 4, generated=[49]))
    with pytest.raises(NeverFits, match="token 50 at position 1 ") as in_prompt:
        held.check(request([0, 50], 4))
    with pytest.raises(NeverFits, match="token 99 at position 0 ") as in_output:
        held.check(request([0, 1], 4, generated=[99]))
    assert (in_prompt.value.field, in_output.value.field) == ("request.prompt_token_ids", "request.generated_token_ids")
