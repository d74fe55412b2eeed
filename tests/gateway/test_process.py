"""The gateway process: what goes wrong while it stops ends it with an error, too."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from shardmq.gateway import process
from shardmq.gateway.process import GatewayOptions
from shardmq.gateway.server import Server


def test_a_callback_that_fails_while_the_gateway_drains_ends_it_with_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("half of it was applied")

    async def drain(_server: Server, _seconds: float) -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(0)

    async def serve() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await process._serve(GatewayOptions("gateway-0", "127.0.0.1", 0, address("coordinator"), (address("shard-0"),)))

    def address(name: str) -> str:
        return f"ipc://{tmp_path}/{name}"

    monkeypatch.setattr(Server, "drain", drain)
    with pytest.raises(RuntimeError, match="half of it was applied"):
        asyncio.run(serve())
