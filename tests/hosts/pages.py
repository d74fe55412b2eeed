"""Runs what pages such as docs/operations/hosts-maintenance.md tell to type, line by line, on hosts of a test."""

import re
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shardmq.cmd.run.invocation import command
from tests.docs.document import FENCE, ROOT, Document
from tests.hosts.deployed import DeployedBroker
from tests.hosts.document import typed
from tests.hosts.hosts import CLIENT, NAMES
from tests.hosts.members import Process

PAGE = Document(ROOT / "docs" / "operations" / "hosts-maintenance.md")
REPLICAS = Document(ROOT / "docs" / "operations" / "replicas.md")
DATA_DIR = "/var/lib/shardmq/*"
SECONDS = 120.0
"""For what says that it is to be tried again: on a busy machine a shard may be led elsewhere meanwhile."""

TRY_AGAIN = re.compile(r"it went away; remove (?P<folder>\S+), and try again|needs every shard, try again later")


class Operator:
    """Types what a page says.

    Args:
        broker: on which hosts.
        names: names that the page has, of hosts, shards, folders and addresses, and what they are here.
        page: which one.
    """

    def __init__(self, broker: DeployedBroker, names: Mapping[str, str], page: Document = PAGE) -> None:
        self._broker = broker
        self._names = names
        self._page = page
        self._on: Sequence[str] = (CLIENT,)
        self.started: list[Process] = []

    def does(self, title: str) -> list[str]:
        """Run the blocks of a section; returns what each command of `shardmq` said."""
        said = []
        for found in FENCE.finditer(self._page.section(title)):
            if found["reason"] is not None:
                continue
            assert found["tool"] == "Hosts"
            self._on = (CLIENT,)
            for line in found["code"].splitlines():
                said += self._type(line)
                typed.add(line)
        return said

    def _type(self, line: str) -> list[str]:
        program, *words = shlex.split(line)
        match program, *words:
            case "#", "on", "all":
                self._on = NAMES
            case "#", "on", name:
                self._on = (self._names[name],)
            case "systemctl", "stop", "shardmq-host":
                with ThreadPoolExecutor() as stopping:  # at the same time
                    list(stopping.map(self._stop, self._on))
            case "systemctl", "start", "shardmq-host":
                self._broker.start(*self._on)
            case "rm", "-rf", folder:
                assert folder == DATA_DIR
                for path in self._broker.data_dir(self._host).iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            case ("shardmq", "gateway", *_) | ("shardmq", "shard", "--index", *_):
                self.started.append(self._broker.spawn(self._host, *command(*map(self._named, words))))
            case "shardmq", *_:
                noun, *rest = words
                return [self._run(line, command(noun, *map(self._named, rest)))]
            case _:
                raise AssertionError(f"nobody knows how to type {line!r}")
        return []

    @property
    def _host(self) -> str:
        (host,) = self._on
        return host

    def _named(self, word: str) -> str:
        """A word of a page, as it is here."""
        if word in self._names:
            return self._names[word]
        for old, new in self._names.items():
            if old.startswith("tcp://"):
                word = word.replace(old, new)
        return word

    def _stop(self, host: str) -> None:
        if not self._broker.ups[host].has_ended:
            self._broker.stop(host)

    def _run(self, line: str, words: Sequence[str]) -> str:
        """Run a command to its end; returns what it said."""
        deadline = time.monotonic() + SECONDS
        done = self._broker.on(self._host, *words)
        while (again := TRY_AGAIN.search(done.stderr)) and time.monotonic() < deadline:
            if again["folder"]:
                shutil.rmtree(again["folder"])
            done = self._broker.on(self._host, *words)
        assert done.returncode == 0, f"{line}: {done.stderr}\n{self._broker.last_words()}"
        return done.stdout


def folders(broker: DeployedBroker) -> dict[str, str]:
    """Folders that the page names."""
    backup = str(broker.folder / "monday")
    return {"/var/backups/monday": backup, "monday": backup, "restored": str(broker.folder / "restored")}


def is_restored(broker: DeployedBroker) -> bool:
    """Whether the page's backup became a data directory."""
    return (Path(folders(broker)["restored"]) / "coordinator").is_dir()
