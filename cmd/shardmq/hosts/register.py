"""What etcd has of a broker, for a command: read, changed, waited for."""

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.run.hosts.options import JOIN_VARIABLE
from shardmq.cmd.terminal.output import CommandFailed
from shardmq.replication.etcd.errors import Unreachable
from shardmq.replication.etcd.url import EtcdUrl, parse
from shardmq.replication.etcd.values import BROKER, FORMAT, GROUPS, HOSTS, LOADS, WISHES, Kind
from shardmq.replication.planning.cluster import FIRST_FORMAT, Cluster

if TYPE_CHECKING:  # replicas' stores come along with these, which no list of commands needs
    from shardmq.replication.etcd.background import BackgroundRegister
    from shardmq.replication.etcd.change import Edit
    from shardmq.replication.etcd.news import News

ANSWER_SECONDS: Final = 10.0
"""For one reading or change."""

LOOK_SECONDS: Final = 0.25
"""Between two looks at something that is waited for."""


@contextlib.contextmanager
def opened(url: str | None) -> "Iterator[BrokerRegister]":
    """The register of the broker that a URL of etcd names.

    Raises:
        UsageError: there is no URL.
    """
    if url is None:
        raise click.UsageError(f"--join ({JOIN_VARIABLE}) is missing: where etcd is, as the hosts have it")
    from shardmq.replication.etcd.background import BackgroundRegister

    parsed = parse(url)
    register = BackgroundRegister(parsed, f"command-{secrets.token_hex(8)}")
    try:
        yield BrokerRegister(parsed, register)
    finally:
        register.close()


class BrokerRegister:
    """The register of one broker.

    Args:
        url: of etcd.
        register: there.
    """

    def __init__(self, url: EtcdUrl, register: "BackgroundRegister") -> None:
        self._url = url
        self._register = register

    def cluster(self) -> Cluster:
        """All that etcd has of the broker.

        Raises:
            EtcdError: it does not answer.
            CommandFailed: it has no broker there.
        """
        from shardmq.replication.etcd.news import Failed, Listed

        kinds: tuple[Kind[Any], ...] = (BROKER, HOSTS, GROUPS, WISHES, LOADS, FORMAT)
        for kind in kinds:
            self._register.list(kind, ANSWER_SECONDS)
        found: dict[str, dict[str, Any]] = {}
        while len(found) < len(kinds):
            for news in self._next():
                if isinstance(news, Failed):
                    raise news.error
                if isinstance(news, Listed):
                    found[news.kind.folder] = {entry.name: entry.value for entry in news.entries}
        broker = found[BROKER.folder].get("")
        if broker is None:
            raise CommandFailed(
                f"{self._url} has no broker; name the prefix that its hosts have in --join, or start the first of them"
            )
        hosts, groups, wishes, loads, formats = (found[kind.folder] for kind in kinds[1:])
        return Cluster(broker, hosts, groups, wishes, loads, formats.get("", FIRST_FORMAT).version)

    def change(self, kind: Kind[Any], name: str, edit: "Edit[Any]") -> bool:
        """Have a value be what it should be; returns whether it was changed.

        Raises:
            EtcdError: it could not be done.
        """
        self._register.change(kind, name, edit, ANSWER_SECONDS)
        return self._await_stored()

    def remove(self, kind: Kind[Any], name: str) -> None:
        """Delete a value.

        Raises:
            EtcdError: it could not be done.
        """
        self._register.remove(kind, name, ANSWER_SECONDS)
        self._await_stored()

    def wait_until(self, holds: Callable[[Cluster], bool], seconds: float) -> bool:
        """Look until something holds; returns whether it does.

        Raises:
            EtcdError: it does not answer, in the end.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                if holds(self.cluster()):
                    return True
                if time.monotonic() >= deadline:
                    return False
            except Unreachable:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(LOOK_SECONDS)

    def _await_stored(self) -> bool:
        from shardmq.replication.etcd.news import Failed, Stored

        while True:
            for news in self._next():
                if isinstance(news, Failed):
                    raise news.error
                if isinstance(news, Stored):
                    return news.changed

    def _next(self) -> "list[News]":
        self._register.wait(ANSWER_SECONDS)
        return self._register.take()
