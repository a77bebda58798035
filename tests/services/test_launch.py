"""The table `llm`: its rows, their order, and options that are refused by name."""

from __future__ import annotations

import importlib

import pytest

from services.launch import LlmOptions, llm
from zmqengine.errors import ConfigError
from zmqengine.named_tables import find_table
from zmqengine.table import Row, Table
from zmqengine.table_toml import load_table


def table(*settings: str) -> Table:
    return find_table("llm", settings)


def test_it_is_registered_by_its_name() -> None:
    assert find_table("llm") == llm(LlmOptions())


def test_the_services_start_in_order_and_each_after_those_that_it_calls() -> None:
    assert [(row.name, row.after) for row in table().rows] == [
        ("scheduler", []), ("engine", ["scheduler"]), ("processor", ["engine"]), ("worker", ["engine"]),
        ("api", ["processor", "worker"]),
    ]  # fmt: skip


def test_only_the_api_waits_for_the_weights() -> None:
    assert table().dependents("worker") == ["api"]
    assert table().row("worker").ready.timeout > table().row("engine").ready.timeout


@pytest.mark.parametrize("row", llm(LlmOptions()).rows, ids=lambda row: row.name)
def test_each_row_names_a_service_that_takes_its_options_and_speaks_its_protocol(row: Row) -> None:
    module, _, name = row.impl.partition(":")
    service = getattr(importlib.import_module(module), name)
    assert service.protocol == row.protocol == f"{row.name}/1"
    service.config_type()(**row.options)


def test_options_reach_the_services_that_take_them_and_no_others() -> None:
    rows = table(
        "model=x.gguf", "dtype=float32", "num_kv_blocks=64", "served_name=mine", "prefix_cache=false"
    ).rows  # fmt: skip
    assert {row.name: row.options for row in rows if row.options} == {
        "worker": {"model": "x.gguf", "dtype": "float32", "num_kv_blocks": 64},
        "processor": {"model": "x.gguf", "served_name": "mine"},
    }


def test_what_is_not_given_is_left_to_the_service() -> None:
    assert "num_kv_blocks" not in table().row("worker").options
    assert "served_name" not in table().row("processor").options


def test_worker_and_processor_always_have_the_same_model() -> None:
    for settings in ((), ("model=/models/other",)):
        rows = table(*settings)
        assert rows.row("worker").options["model"] == rows.row("processor").options["model"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("modle=x", r"--set modle: .*'modle'.*model"),
        ("num_kv_blocks=0", "num_kv_blocks"),
        ("num_kv_blocks=many", "num_kv_blocks"),
        ("dtype=int4", "dtype"),
        ("port=8000", "an option of one row is written service.key=value"),
        ("wroker.dtype=float32", "wroker"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_by_its_name(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        table(setting)


def test_a_row_s_own_option_is_set_by_its_name() -> None:
    assert table("api.port=0").row("api").options == {"port": 0}


def test_it_is_written_as_a_file_that_is_the_same_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    from zmqengine.table_toml import to_toml

    path = tmp_path_factory.mktemp("table") / "llm.toml"
    path.write_text(to_toml(table("num_kv_blocks=64")))
    assert load_table(path).rows == table("num_kv_blocks=64").rows
