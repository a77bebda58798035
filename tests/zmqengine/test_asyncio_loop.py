"""A fault in one turn of the loop costs nobody else their messages, nor the loop its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from zmqengine.asyncio_loop import AsyncioLoop
from zmqengine.connection import Connection
from zmqengine.dispatcher import Dispatcher
from zmqengine.envelope import Envelope
from zmqengine.health import Welcome
from zmqengine.transport import Link, Port
from zmqengine.wire import Kind


def test_a_turn_that_raises_neither_loses_messages_nor_keeps_the_loop_from_stopping(tmp_path: Path) -> None:
    asyncio.run(faulty_turns(tmp_path))


async def faulty_turns(folder: Path) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    loop = AsyncioLoop()
    port = Port(f"ipc://{folder}/port")
    dispatcher = Dispatcher(
        port, loop, {}, where="it", incarnation="", describe=lambda: None, touched=loop.touch
    )  # fmt: skip
    seen: list[int] = []

    def hello(identity: bytes, message: Envelope) -> None:
        seen.append(message.call_id)
        if message.call_id == 1:
            raise RuntimeError("a fault of ours")
        dispatcher.reply_to(identity, Kind.WELCOME, message.call_id, Welcome(run="x", released=False))

    dispatcher.lifecycle = {Kind.HELLO: hello}
    loop.serve(dispatcher)
    running = asyncio.create_task(loop.run())
    connection = Connection(Link(port.endpoint, "it"), touched=loop.touch)
    loop.add_connection(connection)
    unlucky = connection.ask(Kind.HELLO, None, Welcome, None)
    answers = [connection.ask(Kind.HELLO, None, Welcome, None) for _ in range(3)]
    for answer in answers:
        assert (await asyncio.wait_for(answer, 5.0)).run == "x"
    assert "a fault of ours" in str(unlucky.error)
    assert reported == []

    def fault() -> bool:
        raise RuntimeError("a fault while it stops")

    connection.turn = fault  # type: ignore[method-assign]
    connection.flush = fault  # type: ignore[method-assign]
    loop.stop()
    await asyncio.wait_for(running, 5.0)
    del connection.turn, connection.flush
    await loop.close()
    port.close()
