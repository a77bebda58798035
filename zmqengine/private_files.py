"""Directories and files that are this user's alone."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from .errors import ConfigError

MAX_BYTES = 4096
"""Of a private file that is read: keys are small."""


def private_directory(path: Path, advice: str = "") -> None:
    """Make a directory that only this user can enter; refuse one that is another's, or a link. advice: what to do
    about it, for the message."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise ConfigError(f"{path} is not a directory of this user; remove it{advice}")
    if stat.S_IMODE(info.st_mode) != 0o700:
        path.chmod(0o700)


def write_private(path: Path, text: str, *, replace: bool) -> None:
    """Write a file that only this user can read, as a whole or not at all. Raises ConfigError where there is one that
    is not to be replaced."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # fails where somebody made one just now
    except FileExistsError:
        raise ConfigError(f"{path} is there already") from None
    finally:
        temporary.unlink(missing_ok=True)


def read_private(path: Path) -> str:
    """A small file's text. Raises ConfigError if others than this user can read or change it, OSError if it is not
    there or is a link."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        info = os.fstat(fd)
        mode = stat.S_IMODE(info.st_mode)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
            raise ConfigError(f"{path} is not a file of this user; it is not used")
        if mode & 0o077:
            raise ConfigError(
                f"{path} can be read or changed by others (mode {mode:04o}); it is not used. "
                f"If nobody has seen it: chmod 600 {path}"
            )
        return os.read(fd, MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)
