from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqengine.latency import Latencies


def test_without_a_call_there_is_no_quantile() -> None:
    assert Latencies().quantiles(0.5, 0.99) == [None, None]


@given(st.floats(min_value=0.0, max_value=3600.0))
def test_a_duration_is_told_from_above_and_to_a_quarter(seconds: float) -> None:
    latencies = Latencies()
    latencies.add(seconds)
    (told,) = latencies.quantiles(0.5)
    assert told is not None
    whole_us = int(seconds * 1e6)
    assert whole_us / 1e6 < told <= max(whole_us * 1.25, whole_us + 1) / 1e6 + 1e-12


def test_quantiles_are_of_what_was_counted_since_the_last_forgetting() -> None:
    latencies = Latencies()
    for us in range(1, 101):
        latencies.add(us / 1e6)
    half, most, all_ = latencies.quantiles(0.5, 0.99, 1.0)
    assert half is not None
    assert most is not None
    assert all_ is not None
    assert 50e-6 <= half <= 63e-6
    assert 99e-6 <= most <= all_ <= 126e-6
    latencies.forget()
    latencies.add(1.0)
    assert latencies.quantiles(0.5)[0] == latencies.quantiles(0.01)[0]


def test_what_is_beyond_all_buckets_is_in_the_last_one() -> None:
    latencies = Latencies()
    latencies.add(1e9)
    latencies.add(-1.0)
    assert latencies.quantiles(0.5)[0] == 1e-6
    assert latencies.quantiles(1.0)[0] is not None
