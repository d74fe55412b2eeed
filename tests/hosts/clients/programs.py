"""The programs of docs/operations/failover.md, as processes that connect to the hosts of a test."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.docs.document import ROOT, Document
from tests.hosts.clients.loopback import LoopbackBroker
from tests.hosts.members import Process

PAGE: Final = ROOT / "docs" / "operations" / "failover.md"
FILES: Final = {
    "pika": ("publisher.py", "consumer.py"),
    "Celery": ("shipping.py",),
    "Java": ("Orders.java",),
}
"""What the programs of each section are called here."""

SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TAKEN: Final = re.compile(r"\b(?:got|shipped) (\d+)\b")
CONFIRMED: Final = re.compile(r"^confirmed (\d+)$", re.M)


class Program:
    """A running program of the page.

    Args:
        process: it.
    """

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def said(self) -> str:
        return self.process.output.read_text(errors="replace")

    @property
    def confirmed(self) -> set[int]:
        """The numbers whose publishing was confirmed."""
        return {int(number) for number in CONFIRMED.findall(self.said)}

    @property
    def taken(self) -> set[int]:
        """The numbers that it has consumed."""
        return {int(number) for number in TAKEN.findall(self.said)}

    @property
    def news(self) -> int:
        """How many of its own queues have brought the news."""
        return self.said.count("got news")


class Client:
    """One of the clients: what publishes, and what consumes.

    Args:
        publisher: prints what is confirmed.
        consumer: prints what it takes; the same program in some.
        queues: that it has for itself, which bring news.
    """

    def __init__(self, publisher: Program, consumer: Program, queues: int) -> None:
        self.publisher = publisher
        self.consumer = consumer
        self.queues = queues
        self._noted: set[int] = set()

    @property
    def is_well(self) -> bool:
        """Whether its processes run."""
        return not (self.publisher.process.has_ended or self.consumer.process.has_ended)

    @property
    def counts(self) -> tuple[int, int]:
        """How many messages were confirmed, and how many consumed."""
        return len(self.publisher.confirmed), len(self.consumer.taken)

    def note(self) -> None:
        """Note what is confirmed by now."""
        self._noted = self.publisher.confirmed

    @property
    def lost(self) -> set[int]:
        """What was confirmed by then, and is not consumed."""
        return self._noted - self.consumer.taken

    @property
    def has_all(self) -> bool:
        """Whether nothing is lost, and all its own queues have brought the news."""
        return not self.lost and self.consumer.news >= self.queues

    @property
    def said(self) -> str:
        """What its processes have said last."""
        programs = dict.fromkeys((self.publisher, self.consumer))
        return "\n".join(f"--- {program.process.output.name}\n{program.said[-4000:]}" for program in programs)


class Programs:
    """The programs of the page.

    Args:
        folder: for their files.
        find_jar: finds a library of Java's by its name.
    """

    def __init__(self, folder: Path, find_jar: Callable[[str], Path]) -> None:
        self._folder = folder
        jars = [str(find_jar(name)) for name in ("amqp-client", "slf4j-api", "slf4j-nop")]
        self._path = ":".join([*jars, str(folder)])
        self._programs: list[Program] = []

    def write(self, broker: LoopbackBroker) -> None:
        """Write all programs, with a broker's addresses in them."""
        changes = {f"10.0.0.{place}": address for place, address in enumerate(broker.addresses.values(), 1)}
        changes["5672"] = str(broker.port)
        for title, names in FILES.items():
            for name, code in zip(names, programs_of(title), strict=True):
                for old, new in changes.items():
                    code = code.replace(old, new)
                (self._folder / name).write_text(code)

    def compile_java(self) -> "subprocess.Popen[bytes]":
        """Begin to compile what is in Java, which takes a while."""
        flags = [f"-J{flag}" for flag in SHORT_LIVED]
        words = ["javac", *flags, "-cp", self._path, "-d", str(self._folder), str(self._folder / "Orders.java")]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def start(self) -> dict[str, Client]:
        """Start all; returns the clients by name."""
        java = self._run("java", *SHORT_LIVED, "-cp", self._path, "Orders")
        (worker,) = [line for line in PAGE.read_text().splitlines() if line.startswith("celery -A shipping worker")]
        shipped = self._run_python("-m", *worker.split(), "--pool", "solo")
        shipping = self._run_python("shipping.py")
        publisher, consumer = self._run_python("publisher.py"), self._run_python("consumer.py")
        return {
            "pika": Client(publisher, consumer, 1),
            "Celery": Client(shipping, shipped, 0),
            "Java": Client(java, java, 2),
        }

    def close(self) -> None:
        """End all."""
        for program in self._programs:
            program.process.kill()

    def _run_python(self, *words: str) -> Program:
        return self._run(sys.executable, *words)

    def _run(self, *command: str) -> Program:
        output = self._folder / f"{len(self._programs)}.out"
        self._programs.append(Program(Process(["env", "-C", str(self._folder), *command], output)))
        return self._programs[-1]


def programs_of(title: str) -> list[str]:
    """The programs in a section of the page."""
    document = Document(PAGE)
    section = document.section(title)
    return [block.code for block in document.blocks if block.tool == "Hosts" and block.code in section]
