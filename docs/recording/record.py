"""Makes the recording of a terminal that the README shows: `make recording`.

A broker is started, and each command of `SCENES` is run in a terminal of its own. What they wrote becomes an SVG whose
lines appear one after the other. Two names are changed: the temporary folder is called ~, and the free port 5672.
"""

import contextlib
import fcntl
import io
import json
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

OUTPUT = Path(__file__).resolve().parent / "first-minute.svg"
COLUMNS = 92
ROWS = 60
READY_SECONDS = 30.0
COMMAND_SECONDS = 20.0
PORTS = range(5673, 6000)
"""As long as 5672 when written, so that tables and boxes keep their shape."""

UP = "shardmq up --shards 4 --log-level warning"
SCENES = (
    "shardmq queue declare hello",
    "shardmq publish hello 'first message'",
    "shardmq queue list",
    "kill -9 {pid}  # the shard that has the queue",
    "shardmq consume hello --count 1  # confirmed is confirmed",
)

BEAT_SECONDS = 1.6
"""From a command to its output, and from there to the next command."""

SHOWN_OF_UP = "Try, in another terminal"
"""What `up` writes from here on, the scenes do."""

GREY, RED, GREEN, YELLOW = (72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)
BLUE, PURPLE, CYAN, WHITE = (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)
THEME = TerminalTheme((13, 17, 23), (230, 237, 243), [GREY, RED, GREEN, YELLOW, BLUE, PURPLE, CYAN, WHITE])

FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>A terminal: shardmq is started, takes a message, loses a process, and still has the message</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
{styles}
@keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}
.{unique_id}-matrix text {{ animation: appear 0.15s backwards; }}
/*delays*/
@media (prefers-reduced-motion: reduce) {{ .{unique_id}-matrix text {{ animation: none; }} }}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
<rect fill="#0d1117" stroke="#30363d" x="1" y="1" width="{width}" height="{height}" rx="8"/>
<g transform="translate(26, 22)">
<circle cx="0" cy="0" r="7" fill="#484f58"/>
<circle cx="22" cy="0" r="7" fill="#484f58"/>
<circle cx="44" cy="0" r="7" fill="#484f58"/>
</g>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Terminal:
    """A program in a terminal of its own.

    Args:
        line: a command line, for the shell.
        folder: where it is run.
        variables: of its environment.
    """

    def __init__(self, line: str, folder: Path, variables: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"], env=variables, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    def read(self, seconds: float, until: str | None = None) -> str:
        """What it writes, until it ends, has written `until`, or the time is over."""
        written = b""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (until is None or until.encode() not in written):
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    written += os.read(self._ours, 65536)
                except OSError:  # so Linux says that the other end is closed
                    break
            elif self.process.poll() is not None:
                break
        return written.decode().replace("\r\n", "\n")

    def close(self) -> None:
        """Stop the program, if it runs still, and wait for it."""
        self.process.terminate()
        while self.process.poll() is None:
            self.read(1.0)
        os.close(self._ours)


def free_port() -> int:
    """A port that nobody has."""
    for port in PORTS:
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise SystemExit("every port from 5673 to 5999 is taken")


def shard_of(queue: str, variables: dict[str, str]) -> int:
    """The process that has a queue."""
    asked = subprocess.run(["shardmq", "queue", "list", "--json"], env=variables, capture_output=True, check=True)
    rows = json.loads(asked.stdout)
    (shard,) = (row["shard"] for row in (rows["queues"] if isinstance(rows, dict) else rows) if row["name"] == queue)
    status = subprocess.run(["shardmq", "status", "--json"], env=variables, capture_output=True, check=True)
    (pid,) = (row["pid"] for row in json.loads(status.stdout)["processes"] if row["process"] == f"shard-{shard}")
    return int(pid)


def recorded(folder: Path) -> Iterator[tuple[str, str]]:
    """Command lines, each with what it wrote."""
    port = free_port()
    own = str(Path(sys.executable).parent)
    variables = {**os.environ, "TERM": "xterm-256color", "PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
    variables |= {"SHARDMQ_URL": f"shardmq://guest:guest@127.0.0.1:{port}/", "SHARDMQ_PORT": str(port)}
    variables.pop("COLUMNS", None)

    broker = Terminal(UP, folder, variables)
    try:
        yield UP, renamed(broker.read(READY_SECONDS, SHOWN_OF_UP).partition(SHOWN_OF_UP)[0], folder, port)
        for scene in SCENES:
            line = scene.format(pid=shard_of("hello", variables)) if "{pid}" in scene else scene
            terminal = Terminal(line, folder, variables)
            yield line, renamed(terminal.read(COMMAND_SECONDS), folder, port)
            terminal.close()
    finally:
        broker.close()


def renamed(written: str, folder: Path, port: int) -> str:
    """What was written, with ~ for the folder and 5672 for the port; boxes keep their right side where it was."""
    lines = []
    for line in written.replace(f":{port}", ":5672").split("\n"):
        short = line.replace(str(folder), "~")
        if line.endswith("│"):
            short = short[:-1] + " " * (len(line) - len(short)) + "│"
        lines.append(short)
    return "\n".join(lines)


def drawn(scenes: Sequence[tuple[str, str]]) -> str:
    """The recording as an SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    moments: list[float] = []
    now = 0.3
    for line, written in scenes:
        command, mark, remark = line.partition("#")
        shown = Text.assemble(("$ ", "bold green"), (command, "bold"), (mark + remark, "dim"))
        output = Text.from_ansi(written.strip("\n")) if written.strip() else Text()
        for text, wait in ((shown, BEAT_SECONDS / 2), (output, BEAT_SECONDS)):
            if text:
                console.print(text, soft_wrap=True, highlight=False)
                moments += [now] * (text.plain.count("\n") + 1)
                now += wait
        console.print()
        moments.append(now)
    svg = console.export_svg(theme=THEME, code_format=FRAME, unique_id="shardmq")
    delays = "\n".join(
        f'text[clip-path="url(#shardmq-line-{line})"] {{ animation-delay: {moment:.1f}s; }}'
        for line, moment in enumerate(moments)
    )
    return "\n".join(line.rstrip() for line in svg.replace("/*delays*/", delays).splitlines()) + "\n"


def main() -> None:
    """Run the scenes and write the recording."""
    with tempfile.TemporaryDirectory(prefix="shardmq-") as folder:
        scenes = list(recorded(Path(folder)))
    OUTPUT.write_text(drawn(scenes))
    print(f"wrote {OUTPUT}")


if __name__ == "__main__":
    main()
