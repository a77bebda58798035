"""The launch order, all eight rows of its table and the expert services."""

from __future__ import annotations

import itertools

import pytest

from services import launch_order
from services.launch import LlmOptions, llm
from services.launch_order import Layout, cache_order
from zmqengine.errors import ConfigError

ROWS = {
    (1, 1, 1): "worker first",
    (1, 1, 0): "no cache",
    (1, 0, 1): "worker first",
    (1, 0, 0): "worker first",
    (0, 1, 1): "worker first",
    (0, 1, 0): "no cache",
    (0, 0, 1): "cache first",
    (0, 0, 0): "cache first",
}
"""(profile, mixed, prefix cache) to the order of cache and worker."""


def layout_of(row: tuple[int, int, int], experts: int = 0) -> Layout:
    profile, mixed, prefix_cache = map(bool, row)
    return Layout(profile=profile, mixed=mixed, prefix_cache=prefix_cache, experts=experts)


def test_the_table_has_every_row() -> None:
    assert set(ROWS) == set(itertools.product((0, 1), repeat=3))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_orders_cache_and_worker_as_the_table_says(row: tuple[int, int, int]) -> None:
    assert cache_order(layout_of(row)) == ROWS[row]
    names = [place.service for place in launch_order.launch_order(layout_of(row))]
    if ROWS[row] == "no cache":
        assert "cache" not in names
    else:
        assert (names.index("cache") < names.index("worker")) is (ROWS[row] == "cache first")


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("experts", [0, 3])
def test_every_service_comes_after_those_it_waits_for_and_the_api_comes_last(
    row: tuple[int, int, int], experts: int
) -> None:
    places = launch_order.launch_order(layout_of(row, experts))
    names = [place.service for place in places]
    assert len(set(names)) == len(names)
    for index, place in enumerate(places):
        assert set(place.after) <= set(names[:index])
    assert names[0] == ("scheduler" if row[1] else "splitwise")
    assert names[-1] == "api"
    assert ("expert" in names) is bool(experts)
    if experts:
        assert names.index("expert") < names.index("engine")
        assert places[names.index("engine")].after == ("expert",)


def test_the_table_llm_is_the_order_with_the_options_of_each_service() -> None:
    table = llm(LlmOptions(model="x.gguf", dtype="float32", served_name="x"))
    assert [row.name for row in table.rows] == ["scheduler", "engine", "processor", "worker", "api"]
    assert table.row("worker").options == {"model": "x.gguf", "dtype": "float32"}
    assert table.row("processor").options == {"model": "x.gguf", "served_name": "x"}
    assert table.row("api").after == ["processor", "worker"]


def test_what_needs_a_service_that_there_is_not_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.launch.find_spec", lambda name: None if name.endswith(".cache") else name)
    with pytest.raises(ConfigError, match="the service 'cache', which this version does not have"):
        llm(LlmOptions(prefix_cache=True))
