from __future__ import annotations

from typing import Any

import pytest

from services.engine.outcome import Ending, ending_of
from services.engine.request import Request

from .simulation import message


def ending(generated: list[int], **sampling: Any) -> Ending | None:
    asked = message("r", [9, 2], 3, **sampling)
    stop_ids = frozenset(asked.sampling.stop_token_ids)
    request = Request("r", [9, 2, *generated], 2, asked.sampling, 0, 0.0, 0, stop_ids)
    return ending_of(request, frozenset({1, 2}))


@pytest.mark.parametrize(
    ("generated", "sampling", "expected"),
    [
        ([5, 0], {}, None),
        ([5, 0, 7], {}, Ending("length")),
        ([1], {}, Ending("stop", stop_token_id=1)),
        ([5, 5, 2], {}, Ending("stop", stop_token_id=2)),
        ([1], {"ignore_eos": True}, None),
        ([5, 5, 2], {"ignore_eos": True}, Ending("length")),
        ([0], {"stop_token_ids": [0]}, Ending("stop", stop_token_id=0)),
        ([1], {"stop_token_ids": [1], "ignore_eos": True}, Ending("stop", stop_token_id=1)),
        ([7], {"stop_token_ids": [8]}, None),
    ],
)
def test_the_last_token_or_the_number_of_tokens_ends_a_sequence(
    generated: list[int], sampling: dict[str, object], expected: Ending | None
) -> None:
    assert ending(generated, **sampling) == expected


def test_an_end_of_sequence_at_the_end_of_the_prompt_ends_nothing() -> None:
    assert ending([]) is None
