"""Typed messages: frozen classes whose fields are validated when one is decoded.

Validation is msgspec's; a field's bounds are written with ``msgspec.Meta`` in its annotation. Unknown fields are
ignored on decoding, so that a newer peer of the same major version may add optional ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, dataclass_transform

import msgspec

if TYPE_CHECKING:
    # msgspec passes frozen and kw_only on to subclasses; type checkers have to be told.
    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
    class _Frozen(msgspec.Struct, frozen=True, kw_only=True):
        def __init_subclass__(
            cls, *, tag: Any = None, array_like: bool = False, omit_defaults: bool = False, **options: Any
        ) -> None: ...

    class Message(_Frozen, frozen=True):
        """Base of all messages."""

    class Config(_Frozen, frozen=True):
        """Base of all options."""

else:

    class Message(msgspec.Struct, frozen=True, kw_only=True):
        """Base of everything that travels as an argument, an answer or an item of a stream.

        Subclasses may pass msgspec's struct options as class keywords: ``tag="chat"`` for a member of a union,
        ``array_like=True`` for messages that come in large numbers (they are then encoded without field names).
        """

    class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        """Base of a service's options. Every option has a default or is required; an unknown key is an error."""
