"""`shardmq up --join` says what it waits for."""

import asyncio
from pathlib import Path

import pytest

from shardmq.cmd.run.hosts import supervisor
from shardmq.cmd.run.hosts.options import HostOptions
from shardmq.cmd.run.notices import Notice
from shardmq.cmd.run.roster import BrokerOptions


def test_etcd_that_cannot_be_reached_is_named_again_and_again_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE_SECONDS", 0.05)
    said: list[Notice] = []

    async def wait() -> None:
        told = asyncio.Event()

        def announce(notice: Notice) -> None:
            said.append(notice)
            if len(said) == 2:
                told.set()

        options = BrokerOptions(1, 1, "127.0.0.1", 0, tmp_path)
        host = HostOptions("etcd://app:secret@127.0.0.1:9/orders", "a", "127.0.0.1")
        joining = asyncio.create_task(supervisor._run(options, host, tmp_path, announce))
        await asyncio.wait_for(told.wait(), 20)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining

    asyncio.run(wait())
    assert all("still waiting for etcd://127.0.0.1:9/orders: no answer from etcd" in notice.text for notice in said)
    assert all("127.0.0.1:9 (Connection refused)" in notice.text for notice in said)
    assert "secret" not in "".join(notice.text for notice in said)
