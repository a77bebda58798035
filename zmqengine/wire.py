"""The wire's constants, and its one frame list.

Frames of a message (a ROUTER sees the peer's identity frame before them):

1. envelope: 4 bytes preamble, then one msgpack array.
   preamble: ``Z`` ``E``, major version (1 byte), kind (1 byte). Checked before anything is decoded.
   array: minor version (int), incarnation of the addressee (str, empty: whichever), call id (int), method (str),
   remaining budget in ms (int or nil: none), sequence number (int), credit ([items, bytes] or nil),
   W3C traceparent (str or nil), buffer descriptors (array or nil), body (any).
2. one raw frame per buffer that the descriptors place in a frame, in their order.

A message of kind BATCH has one frame: the preamble and a msgpack array of binaries, each the envelope frame of a
message without buffers. It only saves frames; it is handled as if its members had come one by one.

Who sends what, and where to (D: a service's data socket, C: its control socket, B: the broker's socket):

========  ==================  ======================================================================
kind      direction           meaning
========  ==================  ======================================================================
HELLO     service -> B        a service says who and where it is; sent again when its code is imported
WELCOME   B -> service        it is known, and may set itself up now
HEALTH    any -> D, C; -> B   asks for (or, to B, tells) a `Health`; answered by REPLY on D and C
CALL      client -> D         begin a call; exactly one of REPLY, END, ERROR, REDIRECT ends it
TELL      client -> D         like CALL, without an answer
CANCEL    client -> D         the client wants no (more) answer; the call is ended with ERROR cancelled
REPLY     D -> client         the answer of a call
ITEM      D -> client         items of a stream: the body is an array of one or more consecutive items, the first of
                              them numbered (from 0) by the sequence number
END       D -> client         the stream is complete
ERROR     D -> client         the call failed; body is an `errors.ErrorBody`
CREDIT    client -> D         the client takes this many more items and bytes
DRAIN     B -> C              finish what is in flight within the budget, take nothing new, then stop
REDIRECT  D -> client         another incarnation serves this name now: ask the registry again
BYE       B -> C, service -> B   stop now; or: I have stopped
BATCH     any                 several messages in one frame
========  ==================  ======================================================================
"""

from __future__ import annotations

import enum

MAGIC = b"ZE"
MAJOR = 1
MINOR = 0


class Kind(enum.IntEnum):
    """What a message is. The number is its byte on the wire."""

    HELLO = 1
    WELCOME = 2
    HEALTH = 3
    CALL = 4
    TELL = 5
    CANCEL = 6
    REPLY = 7
    ITEM = 8
    END = 9
    ERROR = 10
    CREDIT = 11
    DRAIN = 12
    REDIRECT = 13
    BYE = 14
    BATCH = 15


MAX_MESSAGE_BYTES = 256 * 1024 * 1024
"""Largest frame that is sent or accepted."""
MAX_FRAMES = 256
"""Most frames of a message, the envelope included."""
MAX_BATCH = 256
"""Most messages that are coalesced into one."""
MAX_BATCH_BYTES = 64 * 1024
"""Larger messages are sent on their own: copying them into a batch costs more than the frame it saves."""
STREAM_ITEMS = 256
"""Credit that a stream begins with, in items, unless its caller says otherwise."""
STREAM_BYTES = 4 * 1024 * 1024
"""Credit that a stream begins with, in bytes of item bodies."""
HIGH_WATER_MARK = 4096
"""Messages that a socket queues for one peer."""

DESCRIBE = "zmqengine.describe"
"""Method that every service answers with its schema. No Python method can have a dot in its name."""
