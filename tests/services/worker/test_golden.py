"""The embedded model in float32 against the reference's greedy outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.worker.runner import Runner

from .stepping import Engine, make_runner, new

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "golden.json").read_text(encoding="utf-8")
)["cases"]
NAMES = [case["name"] for case in CASES]
TIE = 1e-3
"""Where the reference's two best logits lie closer than this, either is right, and the comparison ends."""


@pytest.fixture(scope="module")
def runner(smollm2_path: Path) -> Runner:
    return make_runner(smollm2_path, num_blocks=160, block_size=16)


def sequence(slot: int, case: dict[str, Any]) -> Any:
    return new(slot, case["prompt_ids"], logprobs=5, ignore_eos=True)


def check(engine: Engine, slot: int, case: dict[str, Any], output: list[int]) -> None:
    for sampled, expected in zip(engine.samples[slot], case["output_ids"], strict=True):
        if sampled.token_id == expected:
            continue
        assert case["min_margin"] < TIE, (case["name"], output, case["output_ids"])
        (best, first), (second, other) = sampled.logprob.top[:2]
        assert {sampled.token_id, expected} == {best, second}
        assert first - other < 2 * TIE
        break
    top = engine.samples[slot][0].logprob.top
    assert [token for token, _ in top] == [token for token, _ in case["top5_first"]]
    assert [value for _, value in top] == pytest.approx([value for _, value in case["top5_first"]], abs=1e-3)


@pytest.mark.parametrize("case", [c for c in CASES if c["name"] != "raw_long"], ids=lambda c: c["name"])
def test_a_sequence_alone_gives_the_golden_tokens(runner: Runner, case: dict[str, Any]) -> None:
    engine = Engine(runner)
    output = engine.generate([sequence(0, case)], len(case["output_ids"]))
    check(engine, 0, case, output[0])


@pytest.mark.parametrize("chunk", [1 << 30, 16], ids=["whole_prompts", "chunks_of_16"])
def test_all_sequences_at_once_give_the_golden_tokens(runner: Runner, chunk: int) -> None:
    engine = Engine(runner, chunk)
    outputs = engine.generate([sequence(slot, case) for slot, case in enumerate(CASES)], 48)
    for slot, case in enumerate(CASES):
        check(engine, slot, case, outputs[slot])


def test_the_long_prompt_alone_in_chunks_gives_the_golden_tokens(runner: Runner) -> None:
    case = CASES[NAMES.index("raw_long")]
    engine = Engine(runner, 100)
    output = engine.generate([sequence(0, case)], 48)
    check(engine, 0, case, output[0])
