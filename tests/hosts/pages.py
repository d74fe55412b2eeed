"""Runs what docs/operations/hosts-maintenance.md tells to type, line by line, on hosts of a test."""

import re
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from shardmq.cmd.run.invocation import command
from tests.docs.document import FENCE, ROOT, Document
from tests.hosts.deployed import DeployedBroker
from tests.hosts.hosts import CLIENT

PAGE = Document(ROOT / "docs" / "operations" / "hosts-maintenance.md")
DATA_DIR = "/var/lib/shardmq/*"
SECONDS = 120.0
"""For what says that it is to be tried again: on a busy machine a shard may be led elsewhere meanwhile."""

TRY_AGAIN = re.compile(r"it went away; remove (?P<folder>\S+), and try again")


class Operator:
    """Types what the page says.

    Args:
        broker: on which hosts.
        names: names that the page has, of hosts, shards and folders, and what they are here.
    """

    def __init__(self, broker: DeployedBroker, names: Mapping[str, str]) -> None:
        self._broker = broker
        self._names = names
        self._host = CLIENT

    def does(self, title: str) -> list[str]:
        """Run the blocks of a section; returns what each command of `shardmq` said."""
        said = []
        for found in FENCE.finditer(PAGE.section(title)):
            assert found["tool"] == "Hosts"
            self._host = CLIENT
            for line in found["code"].splitlines():
                said += self._type(line)
        assert said or title == "A disk is lost"
        return said

    def _type(self, line: str) -> list[str]:
        program, *words = shlex.split(line)
        deadline = time.monotonic() + SECONDS
        match program, *words:
            case "#", "on", name:
                self._host = self._names[name]
            case "systemctl", "stop", "shardmq-host":
                if not self._broker.ups[self._host].has_ended:
                    self._broker.stop(self._host)
            case "systemctl", "start", "shardmq-host":
                self._broker.start(self._host)
            case "rm", "-rf", folder:
                assert folder == DATA_DIR
                for path in self._broker.data_dir(self._host).iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            case "shardmq", *_:
                words = command(*(self._names.get(word, word) for word in words))
                done = self._broker.on(self._host, *words)
                while (again := TRY_AGAIN.search(done.stderr)) and time.monotonic() < deadline:
                    shutil.rmtree(again["folder"])
                    done = self._broker.on(self._host, *words)
                assert done.returncode == 0, f"{line}: {done.stderr}\n{self._broker.last_words()}"
                return [done.stdout]
            case _:
                raise AssertionError(f"nobody knows how to type {line!r}")
        return []


def folders(broker: DeployedBroker) -> dict[str, str]:
    """Folders that the page names."""
    backup = str(broker.folder / "monday")
    return {"/var/backups/monday": backup, "monday": backup, "restored": str(broker.folder / "restored")}


def is_restored(broker: DeployedBroker) -> bool:
    """Whether the page's backup became a data directory."""
    return (Path(folders(broker)["restored"]) / "coordinator").is_dir()
