"""Whether a gateway takes clients in, and reaches the coordinator and all shards: it says so before any login.

us ── AMQP 0 0 9 1 ──► gateway ── connection.start {"ready": …} ──► us, who hang up
"""

import asyncio
import struct
import time
from typing import Any, Final

from shardmq.client.api.tls import context_for, server_name
from shardmq.client.api.url import Address, parse_all
from shardmq.errors import InvalidRequest
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import PROTOCOL_HEADER
from shardmq.protocol.amqp.tables import decode_table

SECONDS: Final = 2.0
"""For a gateway's word."""

PAUSE_SECONDS: Final = 0.25
"""After so long, others are asked beside: several gateways share a port, and one may hang."""

SOCKETS: Final = 1, 1, 2, 4, 8
"""More of them to each address each time, as which gateway one meets is chance: where one of two hangs, all meet that
one once in 65,000 times."""

FRAME_HEAD: Final = struct.Struct(">BHI")
START: Final = struct.pack(">HH", 10, 10)
"""Class and method of connection.start; two bytes of the protocol's version are behind it."""

START_BYTES_MAX: Final = 1 << 16


async def why_not_ready(url: str) -> str:
    """Why a broker is not ready; "" where one of its gateways is."""
    addresses = parse_all(url)
    reasons: dict[Address, str] = {}
    asked: dict[asyncio.Task[str], Address] = {}
    end = time.monotonic() + SECONDS
    try:
        for sockets in SOCKETS:
            for address in addresses:
                if address not in reasons:
                    asked |= {asyncio.create_task(_ask(address)): address for _ in range(sockets)}
            if await _is_ready(asked, reasons, PAUSE_SECONDS):
                return ""
        while asked:
            if await _is_ready(asked, reasons, max(0.0, end - time.monotonic())):
                return ""
    finally:
        for task in asked:
            task.cancel()
    return "; ".join([f"{address}: {reasons[address]}" for address in addresses])


async def _is_ready(asked: dict[asyncio.Task[str], Address], reasons: dict[Address, str], seconds: float) -> bool:
    """Wait for those that were asked; returns whether one is ready, and keeps why others are not."""
    if not asked:
        return False
    done, _ = await asyncio.wait(asked, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        reason = reasons[asked.pop(task)] = task.result()
        if not reason:
            return True
    return False


async def _ask(address: Address) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            properties = await _introduced(address)
    except TimeoutError:
        return f"the gateway lets clients connect, and said nothing within {SECONDS:.0f} s; look whether it is stopped"
    except (OSError, EOFError, AmqpError, InvalidRequest) as fault:
        return f"it takes no clients: {fault}"
    return "" if properties.get("ready") is not False else "it does not reach the coordinator and all shards"


async def _introduced(address: Address) -> dict[str, Any]:
    """What a gateway says of itself to whoever comes."""
    context = context_for(address, None)
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname=None if context is None else server_name(address)
    )
    try:
        writer.write(PROTOCOL_HEADER)
        _, _, size = FRAME_HEAD.unpack(await reader.readexactly(FRAME_HEAD.size))
        if size > START_BYTES_MAX:
            raise EOFError(f"its first word has {size} bytes")
        payload = await reader.readexactly(size)
    finally:
        writer.close()
    if not payload.startswith(START):
        raise EOFError("its first word is not AMQP's")
    table, _ = decode_table(payload, len(START) + 2)
    return table
