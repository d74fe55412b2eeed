"""Members of etcd: which to ask next, their addresses, and connections kept open to them."""

import os
import ssl
from typing import Final

from shardmq.replication.etcd.errors import InvalidUrl
from shardmq.replication.etcd.members.connection import Connection, Peer
from shardmq.replication.etcd.members.resolver import Address, Resolver
from shardmq.replication.etcd.url import Endpoint, EtcdUrl

REST_SECONDS: Final = 1.0
"""A member that did not answer is left alone for so long, where others may."""

IDLE_MAX: Final = 4
"""Connections kept to one member."""


class Member:
    """One member, as seen from here.

    Attributes:
        endpoint: its host and port.
        addresses: of the host; None until they are looked up.
        is_asked: whether they are being looked up.
        rests_until: a time before which others are asked.
        fault: why its addresses are not known.
        idle: open connections that nobody uses.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.addresses: list[Address] | None = None
        self.is_asked = False
        self.rests_until = 0.0
        self.fault = ""
        self.idle: list[Connection] = []

    @property
    def is_unknown(self) -> bool:
        """Whether its addresses are still being looked up for the first time."""
        return self.is_asked and self.addresses is None

    def resolved(self, found: list[Address] | OSError) -> None:
        """Its host was looked up."""
        self.is_asked = False
        if isinstance(found, OSError):
            self.fault = f"its name has no address: {found.strerror or found}"
        elif set(found) != set(self.addresses or ()):  # else their order tells which of them answer
            self.addresses = found


class Endpoints:
    """The members of a URL.

    Args:
        url: where etcd is.
        resolver: of their names.

    Raises:
        InvalidUrl: a file that it names cannot be used.
    """

    def __init__(self, url: EtcdUrl, resolver: Resolver) -> None:
        self._url = url
        self._resolver = resolver
        self._members = [Member(endpoint) for endpoint in url.endpoints]
        self._files = [path for path in (url.authorities, url.certificate, url.key) if path]
        self._seen: list[int] = []
        self._tls: ssl.SSLContext | None = None
        if url.is_tls:
            self._tls = self._context()

    def pick(self, now: float) -> Member:
        """The member to ask: the first in turn whose address is known and that does not rest."""
        return min(self._members, key=lambda member: (member.is_unknown, max(0.0, member.rests_until - now)))

    def rest(self, member: Member, now: float) -> None:
        """A member did not answer: it is asked last from now on, and its host is looked up again."""
        member.rests_until = now + REST_SECONDS
        self._members.remove(member)
        self._members.append(member)
        if member.addresses and len(member.addresses) > 1:
            member.addresses.append(member.addresses.pop(0))
        self._resolver_asked(member)

    def dial(self, member: Member) -> Connection | None:
        """A new connection; None where its addresses are not known yet.

        Raises:
            OSError: its host has no address, or a file for TLS is gone.
        """
        if member.addresses:
            tls = self._renewed() if self._tls else None
            return Connection(Peer(member.addresses[0], member.endpoint.host, str(member.endpoint), tls))
        if member.fault:
            fault, member.fault = member.fault, ""
            raise OSError(fault)
        self._resolver_asked(member)
        return None

    def close(self) -> None:
        """Close all idle connections."""
        for member in self._members:
            for connection in member.idle:
                connection.close()
            member.idle.clear()

    def _resolver_asked(self, member: Member) -> None:
        if not member.is_asked:
            member.is_asked = True
            self._resolver.ask(member.endpoint.host, member.endpoint.port, member.resolved)

    def _renewed(self) -> ssl.SSLContext:
        """The context for TLS, made anew where a file has changed: a certificate may have been renewed."""
        try:
            changed = [os.stat(path).st_mtime_ns for path in self._files] != self._seen
            if changed or self._tls is None:
                self._tls = self._context()
        except InvalidUrl as fault:
            raise OSError(fault.text) from fault
        return self._tls

    def _context(self) -> ssl.SSLContext:
        url = self._url
        try:
            self._seen = [os.stat(path).st_mtime_ns for path in self._files]
            context = ssl.create_default_context(cafile=url.authorities)
            if url.certificate:
                context.load_cert_chain(url.certificate, url.key, password=_refuse_password)
        except (OSError, ValueError) as fault:
            raise InvalidUrl(
                f"TLS to etcd: {', '.join(self._files)} cannot be used ({getattr(fault, 'reason', None) or fault}); "
                "name files in PEM, the key without a password"
            ) from fault
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


def _refuse_password() -> str:
    """Asked for where a key is encrypted; OpenSSL would ask the terminal."""
    raise ValueError("the key is encrypted")
