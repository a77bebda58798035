"""Keys on disk: the pair of this end, and the public keys that it lets in.

A key folder (0700, its files 0600) is a run's, ``keys`` in its directory, or the user's, for all runs that have no pair
of their own: $ZMQENGINE_HOME/keys, or ~/.config/zmqengine/keys. In it:

- ``pair.json``: the key pair. Services that are served with CURVE prove their identity with it, and who dials them as
  well; so what shares a folder may call one another.
- ``allowed/NAME.key``: one public key that may connect, in Z85. Files are added and removed one by one and read anew at
  the next handshake or message, so that `zmqengine keys` works on a run that serves.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from pathlib import Path

from .curve import CurveClient, CurveServer, KeyPair, check_key, fingerprint
from .errors import ConfigError, NotFound
from .message import Message
from .private_files import private_directory, read_private, write_private

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MAX_ALLOWED = 10_000
"""Public keys in a folder."""
SETTLED_NS = 100_000_000
"""A directory that changed more recently than this may change again without another time stamp."""


class Allowed(Message):
    """A public key that may connect."""

    name: str
    public: str


class KeyFolder:
    """The keys of a run or of a user."""

    def __init__(self, path: Path, run: str = "") -> None:
        """run: whose it is, for messages; empty: the user's."""
        self.path = path
        self.run = run
        self._read_at: tuple[int, int] | None = None
        self._lock = threading.Lock()
        """The service's loop asks, and the thread that libzmq asks at a handshake."""
        self._allowed: frozenset[str] = frozenset()

    @property
    def flag(self) -> str:
        """What makes `zmqengine keys` work on this folder, to be put behind a command."""
        return f" --run {self.run}" if self.run else ""

    @property
    def has_pair(self) -> bool:
        """Whether a pair was generated."""
        return self._pair.exists()

    @property
    def _pair(self) -> Path:
        return self.path / "pair.json"

    @property
    def _list(self) -> Path:
        return self.path / "allowed"

    def generate(self, *, replace: bool = False) -> KeyPair:
        """Make a pair. Raises ConfigError where there is one, unless it is to be replaced."""
        private_directory(self.path)
        if self.has_pair and not replace:
            raise ConfigError(
                f"{self._pair} is there already; --replace makes a new one, which every client then has to be given"
            )
        pair = KeyPair.generate()
        write_private(self._pair, json.dumps({"public": pair.public, "secret": pair.secret}) + "\n", replace=replace)
        return pair

    def pair(self) -> KeyPair:
        """The pair. Raises ConfigError, with what to do, where there is none or others could read it."""
        try:
            text = read_private(self._pair)
        except FileNotFoundError:
            raise ConfigError(
                f"there are no keys in {self.path}; make them with `zmqengine keys generate{self.flag}`"
            ) from None
        try:
            found = json.loads(text)
            return KeyPair(found["public"], found["secret"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self._pair} is damaged: expected a public and a secret key as JSON") from None
        except ConfigError as error:
            raise ConfigError(f"{self._pair}: {error}") from None

    def allow(self, public: str, name: str = "") -> Allowed:
        """Let a public key in. The same key twice is a no-op; another under a name that is taken is an error."""
        check_key(public)
        known = {allowed.name: allowed for allowed in self.allowed()}
        same = next((a for a in known.values() if a.public == public and name in ("", a.name)), None)
        if same is not None:
            return same
        name = name or fingerprint(public)
        if not NAME.fullmatch(name):
            raise ConfigError(f"--name {name!r}: a key's name is at most 64 letters, digits, . - and _")
        if name in known:
            raise ConfigError(f"--name {name}: another key has that name; revoke it first, or choose another")
        if len(known) >= MAX_ALLOWED:
            raise ConfigError(f"{self._list} has {MAX_ALLOWED} keys, and no more are taken")
        private_directory(self.path)
        private_directory(self._list)
        write_private(self._list / f"{name}.key", public + "\n", replace=False)
        return Allowed(name=name, public=public)

    def revoke(self, key: str) -> list[Allowed]:
        """Let a key, given by its name or itself, no longer in; what was removed. Raises NotFound."""
        found = [allowed for allowed in self.allowed() if key in (allowed.name, allowed.public)]
        if not found:
            names = ", ".join(allowed.name for allowed in self.allowed()) or "none"
            raise NotFound(f"no allowed key is {key!r}; there are: {names}")
        for allowed in found:
            (self._list / f"{allowed.name}.key").unlink(missing_ok=True)
        return found

    def allowed(self) -> list[Allowed]:
        """The public keys that may connect, by name. A damaged file lets nobody in, and is logged."""
        found = []
        for path in sorted(self._list.glob("*.key")):
            try:
                public = read_private(path).strip()
                check_key(public)
            except FileNotFoundError:
                continue  # revoked just now
            except (ConfigError, OSError) as error:
                log.error("%s lets nobody in: %s", path, error)
                continue
            found.append(Allowed(name=path.stem, public=public))
        return found

    def allows(self, public: str) -> bool:
        """Whether a key may connect: one that is allowed, or the folder's own."""
        return public in self._current()

    def _current(self) -> frozenset[str]:
        """The allowed keys, read anew when their directory has changed since."""
        with self._lock:
            try:
                changed = self._list.stat().st_mtime_ns, self._pair.stat().st_mtime_ns
            except FileNotFoundError:
                self._read_at = None
                return frozenset()  # list or pair are gone: whoever removed them wants nobody in
            if changed != self._read_at:
                now = time.time_ns()
                self._allowed = frozenset([self.pair().public, *(allowed.public for allowed in self.allowed())])
                self._read_at = changed if now - max(changed) > SETTLED_NS else None
            return self._allowed

    def server(self, endpoint: str) -> CurveServer:
        """What serves `endpoint` with CURVE. Raises ConfigError that says what to do where keys are missing."""
        if not self.has_pair:
            raise ConfigError(
                f"{endpoint} needs CURVE keys, and there are none in {self.path}; "
                f"make them with `zmqengine keys generate{self.flag}`"
            )
        pair = self.pair()
        if not self.allowed():
            raise ConfigError(
                f"{endpoint} needs a list of who may connect, and {self._list} has no key; allow each client's with "
                f"`zmqengine keys allow PUBLIC_KEY{self.flag}` (`zmqengine keys show` prints it, where the client runs)"
            )
        return CurveServer(pair, self.allows)

    def client(self, server_key: str) -> CurveClient:
        """What dials the service that has `server_key`. Raises ConfigError, with what to do where keys are missing."""
        check_key(server_key)
        return CurveClient(server_key, self.pair())


def user_folder() -> KeyFolder:
    """The user's."""
    home = os.environ.get("ZMQENGINE_HOME")
    if not home:
        config = os.environ.get("XDG_CONFIG_HOME") or ""
        home = str((Path(config) if os.path.isabs(config) else Path.home() / ".config") / "zmqengine")
    return KeyFolder(Path(home) / "keys")


def folder_of(run_dir: str | Path = "") -> KeyFolder:
    """The folder whose keys are used in a run: its own where that has a pair, else the user's."""
    if run_dir:
        own = KeyFolder(Path(run_dir) / "keys", Path(run_dir).name)
        if own.has_pair:
            return own
    return user_folder()
