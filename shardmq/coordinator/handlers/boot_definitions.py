"""Definitions that the coordinator is started with: carried out once all shards are there, and not again unchanged."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.coordinator.handlers.commands import CommandExecutor
from shardmq.coordinator.state.coordinator import CoordinatorState
from shardmq.coordinator.state.pending_command import PendingCommand, Stage
from shardmq.definitions.importer import ImportPlan, ImportStep, plain_passwords
from shardmq.errors import RequestError, StartupRefused
from shardmq.topology.entities import DEFAULT_VHOST
from shardmq.topology.passwords import hash_password

AT_ONCE: Final = 64
"""Commands that are under way together."""

SKIPPED_LOGGED: Final = 50
"""Sentences about what is left out that are logged, for each file."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DefinitionFiles:
    """What was read.

    Attributes:
        tables: the files' names and contents, in the order of the names.
        digest: of all of them.
    """

    tables: Sequence[tuple[str, dict[str, Any]]]
    digest: bytes


def read_files(path: Path) -> DefinitionFiles:
    """Read a file of definitions, or all *.json in a folder.

    Raises:
        StartupRefused: one cannot be read, or is no JSON object.
    """
    digest = blake2b(digest_size=32)
    tables: list[tuple[str, dict[str, Any]]] = []
    try:
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            content = file.read_bytes()
            digest.update(len(content).to_bytes(8, "big") + content)
            tables.append((str(file), msgspec.json.decode(content, type=dict[str, Any])))
    except OSError as fault:
        raise StartupRefused(f"definitions at {path} cannot be read: {fault.strerror}") from fault
    except msgspec.DecodeError as fault:
        raise StartupRefused(
            f"{file} holds no JSON object: {fault}; export one with `shardmq definitions export`"
        ) from fault
    return DefinitionFiles(tables, digest.digest())


class BootDefinitions:
    """Carries out definitions, file by file, one kind of thing after the other.

    What is refused ends it, and is logged; the next start tries again.

    Args:
        state: of the coordinator.
        commands: carries out the commands.
        files: the definitions; None where there are none to carry out.
    """

    def __init__(self, state: CoordinatorState, commands: CommandExecutor, files: DefinitionFiles | None) -> None:
        self._state = state
        self._commands = commands
        self._files = files
        self._ahead = deque(files.tables if files is not None else ())
        self._name = ""
        self._stages: deque[deque[ImportStep]] = deque()
        self._under_way: list[tuple[ImportStep, PendingCommand]] = []
        self._made = 0
        if files is not None and state.store.definitions() == files.digest:
            _log.info("definitions are as they were when they were imported last; nothing to do")
            self._files = None

    @property
    def is_busy(self) -> bool:
        """Whether there is more to do."""
        return self._files is not None

    def work(self, now: float) -> None:
        """Go on with what is possible now. `now` is in monotonic seconds."""
        if self._files is None or not all(shard.is_open for shard in self._state.shards):
            return
        try:
            self._go_on(self._files, now)
        except RequestError as fault:
            _log.error(
                "definitions of %s: %s; what came before is made (%d changes)", self._name, fault.text, self._made
            )
            self._files = None

    def _go_on(self, files: DefinitionFiles, now: float) -> None:
        for step, pending in self._under_way:
            if pending.error is not None:
                raise pending.error.with_text(f"{step.thing}: {pending.error.text}")
        self._under_way = [each for each in self._under_way if each[1].stage is not Stage.DONE]
        while not self._under_way:
            if self._stages:
                steps = self._stages[0]
                while steps and len(self._under_way) < AT_ONCE:
                    step = steps.popleft()
                    self._under_way.append((step, self._commands.perform_own(step.command, now)))
                    self._made += 1
                if not steps:
                    self._stages.popleft()
            elif self._ahead:
                self._begin(*self._ahead.popleft())
            else:
                self._state.store.write_definitions(files.digest)
                _log.info("definitions are imported: %d changes", self._made)
                self._files = None
                return

    def _begin(self, name: str, table: dict[str, Any]) -> None:
        self._name = name
        hashes = {user: hash_password(password) for user, password in plain_passwords(table).items()}
        plan = ImportPlan(table, self._state.topology, DEFAULT_VHOST, hashes)
        self._stages = deque(deque(steps) for steps in plan.stages if steps)
        for sentence in plan.skipped[:SKIPPED_LOGGED]:
            _log.warning("definitions of %s: skipped %s", name, sentence)
