"""Tells the hub at the job's well-known address, node 0's, which other hub serves: those that come look there first.

The connection stays open as long as this hub serves: once it ends, the other one knows of none.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from kitjob import typed
from kitjob.decoders import MalformedError
from kittrain.agent.rendezvous import handshake, messages
from kittrain.agent.rendezvous.handshake import Answer, AuthenticationError, Key, Proof
from kittrain.agent.rendezvous.hub import Hub

INTERVAL: Final = 0.3  # seconds between two attempts, and between two messages
TIMEOUT: Final = 2.0  # seconds for anything


async def announce(hub: Hub, key: Key, *, to: tuple[str, int], address: str) -> None:
    """Tell it until cancelled.

    Args:
        hub: that serves, at times.
        key: of the run.
        to: the well-known host and port.
        address: of this hub, as ``address:port``.
    """
    while True:
        await hub.serving.wait()
        with suppress(OSError, ValueError, AuthenticationError, MalformedError):  # TimeoutError is an OSError
            await _tell(hub, key, to, address)
        await asyncio.sleep(INTERVAL)


async def _tell(hub: Hub, key: Key, to: tuple[str, int], address: str) -> None:
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection(*to)
    try:
        async with asyncio.timeout(TIMEOUT):
            greeting = key.greet()
            writer.write(handshake.line(greeting))
            answer: Answer = typed.load(Answer, await reader.readline())
        session = key.accept(greeting, answer)
        writer.write(handshake.line(Proof(mac=session.proof)))
        while hub.serves and not reader.at_eof():
            writer.write(session.sign(messages.dump(messages.Serves(address=address, round=hub.round))))
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await hub.idle.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await reader.read(1 << 16)  # so that its end is seen
    finally:
        writer.close()
