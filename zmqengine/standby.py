"""Names of the incarnations of one service that live side by side while it is swapped.

The supervisor, the launcher and the registry know each by a key. The one that serves has the service's own name; a
candidate stands by as ``worker~new``; one that was replaced and drains is ``worker~INCARNATION``. No row can have such
a name. The process itself knows nothing of it: it is called by its service's name all its life.
"""

from __future__ import annotations

_MARK = "~"


def standby_key(name: str) -> str:
    """Key of the candidate for a name."""
    return f"{name}{_MARK}new"


def retired_key(name: str, incarnation: str) -> str:
    """Key of one that was replaced."""
    return f"{name}{_MARK}{incarnation}"


def service_name(key: str) -> str:
    """The name that a key is about."""
    return key.partition(_MARK)[0]


def is_retired(key: str) -> bool:
    """Whether it was replaced by another incarnation, which serves its name."""
    return _MARK in key and not key.endswith(f"{_MARK}new")
