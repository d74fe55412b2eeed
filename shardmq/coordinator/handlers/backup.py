"""A backup of all stores, taken while the broker runs.

    FREEZE ──► HOLD ──► COPY ──► COPYING ──► the coordinator's own copy, then the manifest

First no command is begun, and all shards follow every decision about a transaction (FREEZE). Then every shard pauses
(HOLD) before any of them fixes the content of its copy (COPY). The coordinator fixes its own copy last, and all go on,
some hundredths of a second after they paused. So all copies are of one moment, in which no transaction is half
committed and nothing is on its way between shards. The manifest is written when everything else is on disk; a folder
without it is no backup.
"""

import os
import time
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.bus.listener import Responder
from shardmq.bus.messages.stores import BeginBackup, Copy, Hold
from shardmq.coordinator.handlers.commands import CommandExecutor
from shardmq.coordinator.handlers.transactions import TwoPhaseCommit
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.errors import PreconditionFailed, RequestError
from shardmq.storage.backup_manifest import MANIFEST, BackedUp, BackedUpFile, Manifest
from shardmq.storage.files import make_folder, sync_folder
from shardmq.storage.store_copy import StoreCopy
from shardmq.version import VERSION

PAUSE_SECONDS: Final = 2.0
"""A backup fails if the broker does not pause within this time, which is less than shards hold gateways back."""


class Stage(Enum):
    """How far a backup is."""

    NONE = auto()
    FREEZE = auto()
    HOLD = auto()
    COPY = auto()
    COPYING = auto()
    DONE = auto()
    FAILED = auto()


@dataclass(slots=True)
class _Request:
    responder: Responder[None]
    folder: Path
    bytes_per_second: int
    began_at: float
    deadline: float


class Backup:
    """Takes backups, one at a time.

    Args:
        state: of the coordinator.
        commands: frozen while the broker pauses.
        two_phase_commit: knows which decisions are not followed yet.
    """

    def __init__(self, state: CoordinatorState, commands: CommandExecutor, two_phase_commit: TwoPhaseCommit) -> None:
        self._store = state.store
        self._shards = state.shards
        self._identity = state.identity
        self._commands = commands
        self._two_phase_commit = two_phase_commit
        self._stage = Stage.NONE
        self._request: _Request | None = None
        self._missing = 0
        self._own: StoreCopy | None = None
        self._text = ""
        self._settled_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a backup is being taken."""
        return self._stage not in (Stage.NONE, Stage.DONE, Stage.FAILED)

    def begin(self, responder: Responder[None], message: BeginBackup, now: float) -> None:
        """Begin a backup for a gateway, which is answered when the content of the copies is fixed."""
        try:
            if self.is_busy:
                raise PreconditionFailed("a backup is being taken already; wait until it is done")
            self._make_folder(Path(message.folder))
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        self._request = _Request(
            responder,
            Path(message.folder),
            max(1, message.bytes_per_second),
            time.time(),
            now + PAUSE_SECONDS,
        )
        self._own, self._text = None, ""
        for shard in self._shards:
            shard.copying = None
        self._stage = Stage.FREEZE
        self._commands.is_frozen = True

    def table(self) -> dict[str, Any]:
        """How far the last backup is."""
        rows: list[dict[str, Any]] = []
        if self._stage in (Stage.COPYING, Stage.DONE, Stage.FAILED):
            for shard in self._shards:
                told = shard.copying
                done, total = (told.done, told.total) if told is not None else (0, 0)
                rows.append({"store": shard.name, "bytes": done, "total": total})
            if self._own is not None:
                rows.append({"store": "coordinator", "bytes": self._own.done, "total": self._own.total})
        folder = str(self._request.folder) if self._request is not None else ""
        return {"state": self._stage.name.lower(), "directory": folder, "text": self._text, "stores": rows}

    def work(self, now: float) -> None:
        """Take the next step of the backup, if it is due. Called in every pass."""
        request = self._request
        if request is None or not self.is_busy:
            return
        if self._stage is Stage.COPYING:
            self._watch(request)
        elif now >= request.deadline:
            self._fail(f"the broker did not pause within {PAUSE_SECONDS:.0f} s; try again")
        elif self._stage is Stage.FREEZE and not self._two_phase_commit.following:
            self._hold(request)
        elif self._stage is Stage.HOLD and not self._missing:
            self._ask_copies(request)
        elif self._stage is Stage.COPY and not self._missing:
            self._settle(request)

    def close(self) -> None:
        """Give up the coordinator's own copy: the process ends."""
        if self._own is not None:
            self._own.close()

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_absolute():
            raise PreconditionFailed(f"'{folder}' is not an absolute path, which every process of the broker needs")
        away = [shard.name for shard in self._shards if not shard.is_open]
        if away:
            raise PreconditionFailed(f"not connected: {', '.join(away)}; a backup needs every shard, try again later")
        try:
            make_folder(folder)
            if any(folder.iterdir()):
                raise PreconditionFailed(f"{folder} is not empty; name a directory that does not exist yet")
        except OSError as fault:
            raise PreconditionFailed(f"{folder} cannot hold a backup: {fault.strerror}") from fault

    def _hold(self, request: _Request) -> None:
        self._stage, self._missing = Stage.HOLD, len(self._shards)
        for shard in self._shards:
            if self._stage is Stage.HOLD:  # it has failed where a shard was away
                shard.ask_once(Hold(), partial(self._on_done, request, Stage.HOLD, shard))

    def _ask_copies(self, request: _Request) -> None:
        self._stage, self._missing = Stage.COPY, len(self._shards)
        rate = max(1, request.bytes_per_second // len(self._shards))
        for shard in self._shards:
            shard.copying = None  # until it paused, it may have told of an earlier copy
            folder = str(request.folder / shard.name)
            if self._stage is Stage.COPY:
                shard.ask_once(Copy(folder, rate), partial(self._on_done, request, Stage.COPY, shard))

    def _on_done(self, request: _Request, stage: Stage, shard: ShardLink, error: RequestError | None) -> None:
        if self._request is not request or self._stage is not stage:
            return  # it belongs to a backup that has failed
        if error is None:
            self._missing -= 1
        else:
            self._fail(f"{shard.name}: {error.text}; remove {request.folder}, and try again")

    def _settle(self, request: _Request) -> None:
        """Fix the content of the coordinator's own copy once all shards have done so, and let commands go on."""
        try:
            self._own = self._store.copy(request.folder / "coordinator", request.bytes_per_second)
        except OSError as fault:
            self._fail(f"{request.folder / 'coordinator'} cannot be written: {fault.strerror}")
            return
        self._settled_at = time.time()
        self._stage = Stage.COPYING
        self._commands.is_frozen = False
        request.responder.answer(None)

    def _watch(self, request: _Request) -> None:
        own = self._own
        assert own is not None, "the coordinator's copy began before"
        told = [shard.copying for shard in self._shards]
        faults = [
            f"{shard.name}: {shard.copying.fault}"
            for shard in self._shards
            if shard.copying is not None and shard.copying.fault
        ]
        if own.fault:
            faults.append(f"coordinator: {own.fault}")
        if faults:
            self._fail("; ".join(faults))
        elif own.is_over and all(each is not None and each.files for each in told):
            assert own.copied is not None, "it is over, and has not failed"
            stores = [BackedUp("coordinator", [BackedUpFile(own.copied.name, own.copied.bytes, own.copied.checksum)])]
            stores += [
                BackedUp(shard.name, [BackedUpFile(*file) for file in shard.copying.files])
                for shard in self._shards
                if shard.copying is not None
            ]
            self._write_manifest(request, stores)

    def _write_manifest(self, request: _Request, stores: list[BackedUp]) -> None:
        manifest = Manifest(
            self._identity.broker,
            self._identity.generation,
            VERSION,
            request.began_at,
            self._settled_at,
            time.time(),
            stores,
        )
        aside = request.folder / f"{MANIFEST}.new"
        try:
            with aside.open("wb") as stream:
                stream.write(msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            aside.rename(request.folder / MANIFEST)
            sync_folder(request.folder)
        except OSError as fault:
            self._fail(f"{request.folder} cannot be written: {fault.strerror}")
            return
        self._stage = Stage.DONE

    def _fail(self, text: str) -> None:
        was_answered = self._stage is Stage.COPYING
        self._stage, self._text = Stage.FAILED, text
        self._commands.is_frozen = False
        if self._own is not None:
            self._own.close()
        if self._request is not None and not was_answered:
            self._request.responder.refuse(PreconditionFailed.code, f"no backup: {text}")
