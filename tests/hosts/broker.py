"""A broker on the three hosts, started by the commands that the documents name, and clients of it on a fourth one."""

import fcntl
import io
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Self

from shardmq.cmd.main import run
from shardmq.cmd.run.invocation import command
from tests.hosts.document import documented, documented_join
from tests.hosts.hosts import CLIENT, CLIENT_PORT, NAMES, Hosts
from tests.hosts.members import Process
from tests.hosts.traffic import QUEUES

START_SECONDS = 60.0
SHARDS = 2


class HostsBroker:
    """One broker on hosts a, b and c.

    Args:
        hosts: with etcd.
        prefix: of it in etcd.
        options: of `shardmq up` beside those of the documents.

    Attributes:
        variables: by host, what its processes have in their environment beside what this one has.
    """

    def __init__(self, hosts: Hosts, prefix: str, options: Sequence[str] = ()) -> None:
        self.hosts = hosts
        self._options = options
        self.folder = hosts.folder / prefix
        self.folder.mkdir()
        members = zip(("10.0.0.11", "10.0.0.12", "10.0.0.13"), hosts.etcd.members, strict=True)
        self.join = documented_join({written: f"{member.host}:{CLIENT_PORT}" for written, member in members})
        self.url = f"shardmq://app:secret@{','.join(f'{hosts[name].address}:5672' for name in NAMES)}/"
        self.ups: dict[str, Process] = {}
        self.variables: dict[str, dict[str, str]] = {}
        self._runs: Counter[str] = Counter()
        for words in documented("keys", {"4": str(SHARDS), "keys": str(self.folder / "keys")}):
            with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
                assert run((*words, "--json")) == 0

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Start it on all hosts, with the user of the documents; tell its last words at the end."""
        try:
            self.start(*NAMES)
            self.make_user()
            yield self
        finally:
            print(self.last_words())

    def start(self, *names: str) -> None:
        """Start hosts, and wait until they are up."""
        for name in names:
            self.launch(name)
        for name in names:
            self.wait_for(lambda name=name: self.ups[name].has_ended or self.is_up(name), f"{name} is up")
            assert not self.ups[name].has_ended, self.last_words()

    def launch(self, name: str) -> None:
        """Start a host."""
        self._runs[name] += 1
        log = self.folder / f"{name}-{self._runs[name]}.log"
        variables = [f"{variable}={value}" for variable, value in self.variables.get(name, {}).items()]
        self.ups[name] = self.hosts[name].spawn(["env", *variables, *self._command(name)], log)

    def is_up(self, name: str) -> bool:
        """Whether all processes of a host have run at the same time since it was started."""
        return not self.ups[name].has_ended and '"event":"up"' in self.ups[name].output.read_text()

    def make_user(self) -> None:
        """Make the user that clients log in as: guest may come from its own machine alone."""
        host = self.hosts[NAMES[0]]
        for words in (*documented("user", {}), *documented("permission", {})):
            whole = [*host.prefix, *command(*words, "--url", "shardmq://guest:guest@127.0.0.1/")]
            done = subprocess.run(whole, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr

    def _command(self, name: str) -> list[str]:
        """What starts a host."""
        return command(*self._words(name))

    def _words(self, name: str) -> list[str]:
        """Words of `shardmq up` on a host, as the page has them for host a."""
        changes = {"a": name, "10.0.0.1": self.hosts[name].address, "4": str(SHARDS)}
        changes |= {"keys/a": str(self.folder / "keys" / name), "data": str(self.folder / name)}
        (words,) = documented("up", changes)
        words += [*self._options, "--join", self.join, "--management-port", "off", "--memory-watermark", "1GiB"]
        return [*words, "--json"]

    def kill(self, name: str) -> None:
        """kill -9 of all processes of a host; its stores are nobody's when this returns."""
        self.hosts[name].kill()
        for lock in (self.folder / name).glob("**/lock"):  # who was ending by itself may not have been seen
            self.wait_for(lambda lock=lock: is_free(lock), f"{lock} is let go of")

    def told(self, *words: str) -> Any:
        """What a command on the client's host says, as JSON.

        It is run in this process: who waits asks often, and a process for each would take more than all hosts together.
        """
        code, said = self._run(*words)
        assert code == 0
        return json.loads(said)

    def _run(self, *words: str) -> tuple[int, str]:
        said = io.TextIOWrapper(io.BytesIO())
        with self.hosts[CLIENT].inside(), redirect_stdout(said):
            code = run((*words, "--join", self.join, "--json"))
        said.seek(0)
        return code, said.read()

    def command(self, *words: str) -> Process:
        """A command of an operator, on the client's host."""
        self._runs["command"] += 1
        log = self.folder / f"command-{self._runs['command']}.log"
        return self.hosts[CLIENT].spawn(command(*words, "--join", self.join), log)

    def client(self, what: str) -> Process:
        """A client that publishes or drains."""
        self._runs[what] += 1
        traffic = str(Path(__file__).with_name("traffic.py"))
        log = self.folder / f"{what}-{self._runs[what]}.log"
        return self.hosts[CLIENT].spawn([sys.executable, traffic, what, self.url], log)

    def wait_for(self, holds: Callable[[], Any], what: str, seconds: float = START_SECONDS) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}\n{self.last_words()}"
            time.sleep(0.1)

    def last_words(self) -> str:
        return "\n".join(
            f"--- {log.name}\n{log.read_text(errors='replace')[-9000 if '-' in log.name[:2] else -200 :]}"
            for log in sorted(self.folder.glob("*.log"))
        )

    def group(self, name: str) -> dict[str, Any]:
        """One row of `shardmq shard list`."""
        return next(row for row in self._groups() if row["shard"] == name)

    def states(self) -> dict[str, str]:
        return {row["shard"]: row["state"] for row in self._groups()}

    def _groups(self) -> list[dict[str, Any]]:
        """What `shardmq shard list` says; asked again where etcd is long in answering, as beside other work."""
        answers: list[str] = []

        def is_answered() -> bool:
            code, said = self._run("shard", "list")
            answers.append(said)
            return code == 0

        self.wait_for(is_answered, "etcd answers")
        rows: list[dict[str, Any]] = json.loads(answers[-1])
        return rows

    def is_whole(self) -> bool:
        return {*self.states().values()} == {"whole"}

    def drained(self, again: set[int]) -> set[int]:
        """Take all messages; returns their numbers.

        Args:
            again: numbers that were sent more than once, after a refusal; the others come once, or with a mark.
        """
        client = self.client("drain")
        self.wait_for(lambda: client.has_ended, "all messages are taken")
        lines = client.output.read_text().splitlines()
        assert lines[-1] == "done", lines[-20:]
        found: set[int] = set()
        for number, queue, redelivered in (line.split() for line in lines[:-1]):
            assert queue == QUEUES[int(number) % len(QUEUES)]
            is_new = int(number) not in found
            assert is_new or redelivered == "1" or int(number) in again, f"{number} came twice, unmarked"
            found.add(int(number))
        return found


def is_free(lock: Path) -> bool:
    """Whether no process holds the lock of a folder."""
    with lock.open() as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def lines_of(publisher: Process) -> list[list[str]]:
    """What a publisher says, a list of words for each line that is whole."""
    return [line.split() for line in publisher.output.read_text().splitlines(keepends=True) if line.endswith("\n")]


def confirmed(publisher: Process) -> list[tuple[int, float]]:
    """What a publisher has seen confirmed: numbers and times."""
    return [(int(words[0]), float(words[1])) for words in lines_of(publisher) if words[0].isdecimal()]


def sent_again(publisher: Process) -> set[int]:
    """What a publisher has sent again, as it was refused."""
    return {int(words[1]) for words in lines_of(publisher) if words[0] == "again"}
