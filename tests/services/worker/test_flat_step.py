"""How a step's rows are laid flat and grouped."""

from __future__ import annotations

import pytest
import torch

from services.worker import flat_step
from services.worker.flat_step import FlatStep, Row
from services.worker.kv_cache import KVCache

CACHE = KVCache(torch.zeros(400, 2, 2, 3, 4, 8))


def decode(end: int, block: int = 0) -> Row:
    """A row of one new token whose context is `end` tokens."""
    return Row([end], end - 1, range(block, block + -(-end // 4)), True)


def test_decode_rows_come_first_and_samples_keep_the_order_of_the_rows() -> None:
    rows = [Row([10, 11, 12], 5, [6, 2], True), decode(3, 9), Row([20, 21], 0, [4], False), decode(6, 7)]
    step = FlatStep.of(rows, CACHE)
    assert step.token_ids_T.tolist() == [6, 3, 10, 11, 12, 20, 21]
    assert step.positions_T.tolist() == [5, 2, 5, 6, 7, 0, 1]
    assert step.block_T.tolist() == [8, 9, 2, 2, 2, 4, 4]
    assert step.offset_T.tolist() == [1, 2, 1, 2, 3, 0, 1]
    assert step.sample_index_S.tolist() == [4, 1, 0]


def test_groups_cover_the_tokens_without_gap() -> None:
    rows = [decode(n) for n in (90, 3, 50, 49, 1, 2, 200)] + [Row([1] * n, 0, range(9), False) for n in (7, 2)]
    step = FlatStep.of(rows, CACHE)
    begin = 0
    for group in step.groups:
        assert group.begin == begin
        begin = group.end
    assert begin == len(step.token_ids_T) == 7 + 9


def test_contexts_of_very_different_length_are_not_padded_to_each_other() -> None:
    step = FlatStep.of([decode(n) for n in (400, 210, 190, 100, 32, 30, 4)], CACHE)
    assert [(group.num_seqs, group.context) for group in step.groups] == [(2, 400), (2, 190), (3, 32)]


def test_a_group_is_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_step, "GROUP_TOKENS", 90)
    step = FlatStep.of([decode(40) for _ in range(5)], CACHE)
    assert [group.num_seqs for group in step.groups] == [2, 2, 1]
    monkeypatch.setattr(flat_step, "GROUP_TOKENS", 1)
    assert [group.num_seqs for group in FlatStep.of([decode(40), decode(40)], CACHE).groups] == [1, 1]


def test_equal_contexts_need_no_mask_and_whole_prompts_are_causal() -> None:
    groups = FlatStep.of([decode(9), decode(9), Row([1, 2], 3, [5, 6], True), Row([1, 2], 0, [5], True)], CACHE).groups
    assert [group.mask is None for group in groups] == [True, False, True]
    assert [group.causal for group in groups] == [False, False, True]


def test_a_mask_hides_padding_and_what_lies_ahead() -> None:
    groups = FlatStep.of([decode(5), decode(3), Row([1, 2], 2, [5], True)], CACHE).groups
    assert (groups[0].mask == 0)[:, 0, 0].tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert (groups[1].mask == 0)[0, 0].tolist() == [[True] * 3 + [False], [True] * 4]
