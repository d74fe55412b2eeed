"""Backups: the copies that count are those of this backup, and stay complete when their shard goes away."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.stores import BeginBackup, Copy, Copying, Hold, LookBackup
from shardmq.coordinator.handlers import backup
from shardmq.storage.backup_manifest import MANIFEST, Manifest

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room, ShardEnd


@pytest.fixture
def ends(room: "Room") -> list["ShardEnd"]:
    return [room.shard(0), room.shard(1)]


def begun(room: "Room", folder: Path) -> "tuple[GatewayEnd, int]":
    """A gateway and its request for a backup, once both shards are enrolled."""
    room.start()
    gateway = room.gateway()
    room.until(lambda: all(identity.broker for identity in room.identities.values()))
    return gateway, gateway.call(BeginBackup(str(folder), 1 << 30))


def complete(size: int, checksum: str) -> Copying:
    return Copying(size, size, [("data.mdb", size, checksum)])


def look(room: "Room", gateway: "GatewayEnd") -> dict[str, Any]:
    request = gateway.call(LookBackup())
    answer = room.until(lambda: gateway.answers.get(request))
    assert isinstance(answer, Answer)
    return dict(answer.result)


def until_copied(room: "Room", gateway: "GatewayEnd", store: str, size: Callable[[], int]) -> None:
    def is_copied() -> bool:
        return any(row["store"] == store and row["bytes"] == size() > 0 for row in look(room, gateway)["stores"])

    room.until(is_copied)


def checksums(folder: Path) -> dict[str, str]:
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    return {store.store: file.checksum for store in manifest.stores for file in store.files}


def test_a_copy_of_an_earlier_backup_does_not_count_for_the_next(
    room: "Room", ends: list["ShardEnd"], tmp_path: Path
) -> None:
    gateway, request = begun(room, tmp_path / "backup")
    ends[0].answers = False
    room.until(lambda: ends[0].backups)
    ends[0].say(complete(5, "earlier"))
    ends[0].answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, None)
    ends[1].say(complete(7, "second"))
    until_copied(room, gateway, "shard-1", lambda: 7)
    copy = tmp_path / "backup/coordinator/data.mdb"
    until_copied(room, gateway, "coordinator", lambda: copy.stat().st_size if copy.exists() else 0)
    room.settle(gateway)
    assert look(room, gateway)["state"] == "copying"
    ends[0].say(complete(6, "first"))
    room.until(lambda: look(room, gateway)["state"] != "copying")
    assert look(room, gateway)["state"] == "done"
    assert checksums(tmp_path / "backup").items() >= {"shard-0": "first", "shard-1": "second"}.items()


def test_a_copy_that_is_complete_counts_though_its_shard_goes_away(
    room: "Room", ends: list["ShardEnd"], tmp_path: Path
) -> None:
    gateway, request = begun(room, tmp_path / "backup")
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, None)
    assert [type(asked) for asked in ends[1].backups] == [Hold, Copy]
    ends[1].say(complete(7, "second"))
    until_copied(room, gateway, "shard-1", lambda: 7)
    room.hang_up(ends[1])
    back = room.shard(1)
    room.until(lambda: back.peers)
    ends[0].say(complete(6, "first"))
    room.until(lambda: look(room, gateway)["state"] != "copying")
    table = look(room, gateway)
    assert (table["state"], table["text"]) == ("done", "")
    assert {"store": "shard-1", "bytes": 7, "total": 7} in table["stores"]


def test_a_shard_that_goes_away_with_its_copy_fails_the_backup(
    room: "Room", ends: list["ShardEnd"], tmp_path: Path
) -> None:
    gateway, request = begun(room, tmp_path / "backup")
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, None)
    room.hang_up(ends[1])
    room.until(lambda: look(room, gateway)["state"] != "copying")
    table = look(room, gateway)
    assert (table["state"], table["text"]) == ("failed", "shard-1: it went away")
    assert not (tmp_path / "backup" / MANIFEST).exists()


def test_what_a_shard_says_of_a_failed_backup_does_not_count_for_the_next(
    room: "Room", ends: list["ShardEnd"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAUSE_SECONDS", 0.3)
    gateway, request = begun(room, tmp_path / "backup-1")
    ends[0].answers = False
    assert isinstance(room.until(lambda: gateway.answers.get(request)), Refusal)
    monkeypatch.setattr(backup, "PAUSE_SECONDS", 10.0)
    request = gateway.call(BeginBackup(str(tmp_path / "backup-2"), 1 << 30))
    room.until(lambda: len(ends[0].backups) == len(ends[1].backups) == 2)
    [first, second] = ends[0].withheld
    ends[0].withheld = [first]
    ends[0].answer()
    for _ in range(3):
        assert look(room, gateway)["state"] == "hold"
    ends[0].withheld = [second]
    ends[0].answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, None)
    assert [type(asked) for asked in ends[1].backups] == [Hold, Hold, Copy]


def test_a_backup_needs_every_shard(room: "Room", tmp_path: Path) -> None:
    room.shard(0)
    room.start()
    gateway = room.gateway()
    request = gateway.call(BeginBackup(str(tmp_path / "backup"), 1 << 30))
    refusal = room.until(lambda: gateway.answers.get(request))
    assert isinstance(refusal, Refusal)
    assert refusal.text.endswith("a backup needs every shard, try again later")
    assert "shard-1" in refusal.text


def test_a_shard_that_goes_away_before_its_copy_refuses_the_backup_and_says_what_to_do(
    room: "Room", ends: list["ShardEnd"], tmp_path: Path
) -> None:
    """As one that is handed over to another host."""
    folder = tmp_path / "backup"
    gateway, request = begun(room, folder)
    ends[1].answers = False
    room.until(lambda: ends[1].backups)
    room.hang_up(ends[1])
    answer = room.until(lambda: gateway.answers.get(request))
    assert isinstance(answer, Refusal)
    assert answer.text == f"no backup: shard-1: it went away; remove {folder}, and try again"
    assert look(room, gateway)["state"] == "failed"
