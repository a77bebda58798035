"""The import rules of ARCHITECTURE.md, held over every module of the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLKIT = sorted((ROOT / "zmqengine").rglob("*.py"))
SERVICES = sorted((ROOT / "services").rglob("*.py"))
FOLDERS = ("zmqengine", "services", "scripts", "tests", "examples")
EVERYTHING = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
BANNED_NAMES = {"eval", "exec", "recv_pyobj", "send_pyobj"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
MAY_IMPORT_ZMQ = {
    "transport.py", "broker.py", "loop.py", "poll_loop.py", "asyncio_loop.py",
    # Parts of the transport: keys on a socket, whom libzmq may take, and messages that tell their sender's key.
    "curve.py", "zap.py", "guarded_port.py",
}  # fmt: skip


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module name) of each import, also of those in functions."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(), name_of(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def offences(paths: list[Path], is_bad: object) -> list[str]:
    assert callable(is_bad)
    return [f"{name_of(p)}:{line} {module}" for p in paths for line, module in imports_of(p) if is_bad(p, module)]


def top(module: str) -> str:
    return module.partition(".")[0]


def test_the_rules_see_the_code() -> None:
    assert len(TOOLKIT) > 40
    assert len(SERVICES) > 60
    assert ("zmqengine.errors" in {module for _, module in imports_of(ROOT / "zmqengine" / "client.py")}) is True


def test_the_toolkit_knows_neither_the_services_nor_torch() -> None:
    assert offences(TOOLKIT, lambda _, module: top(module) in {"services", "transformers", "tokenizers"}) == []
    allowed = {"buffer.py"}  # takes tensors by their buffer protocol where the caller has imported torch already
    assert offences([p for p in TOOLKIT if p.name not in allowed], lambda _, module: top(module) == "torch") == []


def test_only_the_transport_the_loops_and_the_broker_import_zmq() -> None:
    assert offences([p for p in TOOLKIT if p.name not in MAY_IMPORT_ZMQ], lambda _, m: top(m) == "zmq") == []
    assert offences(SERVICES, lambda _, module: top(module) == "zmq") == []


def test_services_do_not_import_one_another() -> None:
    shared = {"protocols", "models"}

    def is_bad(path: Path, module: str) -> bool:
        parts = path.relative_to(ROOT / "services").parts
        room = parts[0] if len(parts) > 1 else ""
        other = module.split(".")[1] if module.startswith("services.") else ""
        return bool(room and other) and other != room and other not in shared and room not in shared

    rooms = [path for path in SERVICES if (path.parent / "service.py").exists()]
    assert offences(rooms, is_bad) == []


def test_protocols_and_models_import_no_service() -> None:
    rooms = {path.parent.name for path in SERVICES if path.name == "service.py"}
    shared = [path for path in SERVICES if path.parent.name in {"protocols", "models"}]
    assert offences(shared, lambda _, module: module.split(".")[1:2] and module.split(".")[1] in rooms) == []


def test_service_py_is_the_only_file_of_its_folder_that_imports_zmqengine() -> None:
    logic = [p for p in SERVICES if (p.parent / "service.py").exists() and p.name not in {"service.py", "__main__.py"}]
    allowed = {"services/api/backend.py"}  # the api's view of processor/1, in its place of a stand-in of the tests
    found = offences([p for p in logic if name_of(p) not in allowed], lambda _, module: top(module) == "zmqengine")
    assert found == []


def test_torch_is_imported_by_the_worker_alone() -> None:
    others = [path for path in SERVICES if path.parent.name != "worker"]
    assert offences(others, lambda _, module: top(module) in {"torch", "safetensors"}) == []


def test_tenacity_is_imported_by_the_retry_policies_alone() -> None:
    others = [path for path in [*TOOLKIT, *SERVICES] if name_of(path) != "zmqengine/retry.py"]
    assert offences(others, lambda _, module: top(module) == "tenacity") == []


def test_click_is_imported_by_the_command_line_alone() -> None:
    def is_cli(path: Path) -> bool:
        return path.parent.name == "cli" or path.name in {"cli.py", "__main__.py", "by_hand.py"}

    others = [path for path in [*TOOLKIT, *SERVICES] if not is_cli(path)]
    assert offences(others, lambda _, module: top(module) == "click") == []


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_nothing_pickles_or_evaluates(path: Path) -> None:
    assert [f"{line} {module}" for line, module in imports_of(path) if top(module) in PICKLES] == []
    used = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_NAMES)
        or (isinstance(node, ast.Attribute) and node.attr in {"recv_pyobj", "send_pyobj"})
    ]
    assert used == []


def test_nothing_that_starts_or_serves_sleeps() -> None:
    """Wait for the event: ``time.sleep`` and ``asyncio.sleep`` appear nowhere in the product."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in [*TOOLKIT, *SERVICES]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and isinstance(node.value, ast.Name)
        and node.value.id in {"time", "asyncio"}
    ]  # fmt: skip
    assert found == []


def test_no_address_of_all_interfaces_is_bound() -> None:
    found = [name_of(p) for p in [*TOOLKIT, *SERVICES] if re.search(r"tcp://(\*|0\.0\.0\.0)", p.read_text())]
    assert found == []
