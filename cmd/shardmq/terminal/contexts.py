"""Named brokers: their URLs with credentials, in a file that its user alone reads.

The file is `shardmq/contexts.json` under XDG_CONFIG_HOME, else under ~/.config. A command takes --url, else
SHARDMQ_URL, else the selected context, else the broker of this machine.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from shardmq.client.api.url import DEFAULT_URL, URL_VARIABLE
from shardmq.cmd.terminal.files import write_anew
from shardmq.cmd.terminal.output import CommandFailed

FORMAT: Final = 1


@dataclass(slots=True)
class Context:
    """A named broker.

    Attributes:
        url: with credentials.
        description: for people.
    """

    url: str
    description: str = ""


@dataclass(slots=True)
class Contexts:
    """All contexts of a user.

    Attributes:
        all: by name.
        selected: that commands use; None for none.
        previous: that was selected before; None for none.
    """

    all: dict[str, Context] = field(default_factory=dict)
    selected: str | None = None
    previous: str | None = None

    def named(self, name: str) -> Context:
        """The context of that name.

        Raises:
            CommandFailed: there is none.
        """
        if name not in self.all:
            there = f"there are {', '.join(sorted(self.all))}" if self.all else "`shardmq context add` makes one"
            raise CommandFailed(f"no context '{name}'; {there}")
        return self.all[name]

    def select(self, name: str) -> None:
        """Have commands use a context.

        Raises:
            CommandFailed: there is none of that name.
        """
        self.named(name)
        if name != self.selected:
            self.selected, self.previous = name, self.selected

    def remove(self, name: str) -> None:
        """Forget a context.

        Raises:
            CommandFailed: there is none of that name.
        """
        self.named(name)
        del self.all[name]
        self.selected = None if self.selected == name else self.selected
        self.previous = None if self.previous == name else self.previous


def path() -> Path:
    """Where the file is."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".config") / "shardmq" / "contexts.json"


def load() -> Contexts:
    """The contexts there are; none where there is no file.

    Raises:
        CommandFailed: the file cannot be read, is none of contexts, or others may read its passwords.
    """
    file = path()
    try:
        with file.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            raw = opened.read()
    except FileNotFoundError:
        return Contexts()
    except OSError as fault:
        raise CommandFailed(f"{file} cannot be read: {fault.strerror or fault}") from fault
    if mode & 0o077:
        raise CommandFailed(f"{file} has passwords and others may read it; run `chmod 600 {file}`")
    try:
        return _read(json.loads(raw))
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise CommandFailed(f"{file} is no file of contexts ({fault}); mend it or move it away") from fault


def _read(table: Any) -> Contexts:
    if table["format"] != FORMAT:
        raise ValueError(f"its format is {table['format']}, this program knows {FORMAT}")
    found = {str(name): Context(**row) for name, row in table["contexts"].items()}
    if not all(isinstance(each.url, str) and isinstance(each.description, str) for each in found.values()):
        raise TypeError("a url or a description is no text")
    selected, previous = (name if name in found else None for name in (table["selected"], table["previous"]))
    return Contexts(found, selected, previous)


def save(found: Contexts) -> None:
    """Write the file anew, whole or not at all.

    Raises:
        CommandFailed: it cannot be written.
    """
    file = path()
    table = {
        "format": FORMAT,
        "selected": found.selected,
        "previous": found.previous,
        "contexts": {name: asdict(context) for name, context in sorted(found.all.items())},
    }
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_anew(file, (json.dumps(table, indent=2) + "\n").encode())
    except OSError as fault:
        raise CommandFailed(f"{file} cannot be written: {fault.strerror or fault}") from fault


def default_url() -> str:
    """The URL of commands without --url and SHARDMQ_URL: the selected context's, else that of this machine's broker.

    Raises:
        CommandFailed: the file of contexts cannot be used.
    """
    if os.environ.get(URL_VARIABLE):
        return DEFAULT_URL  # the variable wins, also over a file that cannot be used
    found = load()
    return DEFAULT_URL if found.selected is None else found.named(found.selected).url
