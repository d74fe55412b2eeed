"""Calls go from member to member, until their deadline, and say what became of them."""

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from shardmq.replication.etcd.errors import OutcomeUnknown, Refused, Unreachable
from shardmq.replication.etcd.messages import (
    PutAnswer,
    RangeAnswer,
    delete_request,
    put_request,
    range_request,
    swap_request,
)
from tests.hosts.members import Etcd

from .cutting import CuttingProxy
from .loop import Asker
from .slow_proxy import SlowProxy


def port_of_nobody() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_key_is_written_read_swapped_and_deleted(asker: Asker) -> None:
    written = asker.ask(put_request(b"k", b"\0\xff")).header.revision
    read = asker.ask(range_request(b"k"))
    assert [(kv.key, kv.value, kv.mod_revision) for kv in read.kvs] == [(b"k", b"\0\xff", written)]
    assert asker.ask(swap_request(b"k", b"2", written)).succeeded
    refused = asker.ask(swap_request(b"k", b"3", written))
    assert not refused.succeeded
    assert refused.responses[0].response_range.kvs[0].value == b"2"
    assert asker.ask(delete_request(b"k", written + 1)).succeeded
    assert asker.ask(range_request(b"k")).count == 0


def test_who_asks_nonsense_is_refused_and_another_member_is_not_asked(asker: Asker) -> None:
    refusal = asker.ask(range_request(b""))
    assert isinstance(refusal, Refused)
    assert (refusal.status, str(refusal)) == (3, "etcd refused a request: etcdserver: key is not provided")


def test_members_that_are_not_there_are_passed_over(etcd: Etcd) -> None:
    with Asker(f"etcd://127.0.0.1:{port_of_nobody()},{etcd.hosts}") as asker:
        assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)
        began = time.monotonic()
        for _ in range(10):
            assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)
        assert time.monotonic() - began < 1.0  # it is remembered who answers


def test_a_frozen_member_is_given_up_for_the_next(etcd: Etcd) -> None:
    with Asker(etcd.url) as asker:
        frozen = etcd.members[0]
        asker.ask(range_request(b"k"))  # so that a connection to it is kept
        frozen.freeze()
        try:
            assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)
        finally:
            frozen.thaw()


def test_a_member_that_answers_late_is_heard(etcd: Etcd) -> None:
    with SlowProxy(etcd.members[0].port, 0.35) as slow, Asker(f"etcd://127.0.0.1:{slow.port}") as asker:
        assert isinstance(asker.ask(range_request(b"k"), seconds=1.0), RangeAnswer)


def test_what_comes_when_nobody_waits_any_more_leaves_a_connection_for_the_next(etcd: Etcd) -> None:
    with SlowProxy(etcd.members[0].port, 0.2) as slow, Asker(f"etcd://127.0.0.1:{slow.port}") as asker:
        assert isinstance(asker.ask(range_request(b"k"), seconds=0.2), Unreachable)
        passed = time.monotonic() + 0.6
        asker.until(lambda: time.monotonic() > passed)
        for _ in range(3):
            assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)
        assert slow.accepted == 1


def test_a_change_goes_to_the_next_member_alone_where_the_first_cannot_be_connected_to(etcd: Etcd) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        full.setblocking(False)
        with (
            socket.create_connection(full.getsockname()),  # no other one fits until it is accepted
            Asker(f"etcd://127.0.0.1:{full.getsockname()[1]},{etcd.hosts}") as asker,
        ):
            assert isinstance(asker.ask(put_request(b"k", b"v")), PutAnswer)
            full.accept()[0].close()
            accepted: list[socket.socket] = []

            def is_accepted() -> bool:
                with contextlib.suppress(BlockingIOError):
                    accepted.append(full.accept()[0])
                return bool(accepted)

            asker.until(is_accepted)  # the kernel has tried again
            with accepted[0] as late:
                late.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    late.recv(1)


def test_nobody_to_ask_is_told_with_each_members_reason() -> None:
    port = port_of_nobody()
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Asker(f"etcd://127.0.0.1:{port},127.0.0.1:{silent.getsockname()[1]}") as asker,
    ):
        error = asker.ask(put_request(b"k", b"v"), seconds=0.3)
        # The silent one has the request, and may yet carry it out.
        assert isinstance(error, OutcomeUnknown)
        error = asker.ask(range_request(b"k"), seconds=0.8)
        assert isinstance(error, Unreachable)
        assert f"127.0.0.1:{port} (Connection refused)" in str(error)
        assert f"127.0.0.1:{silent.getsockname()[1]} (no answer in time)" in str(error)


def test_a_change_that_could_not_be_sent_has_had_no_effect() -> None:
    with Asker(f"etcd://127.0.0.1:{port_of_nobody()}") as asker:
        assert isinstance(asker.ask(put_request(b"k", b"v"), seconds=0.3), Unreachable)


def test_a_lost_answer_is_told_at_once_and_the_change_is_not_sent_again(etcd: Etcd) -> None:
    with CuttingProxy(etcd.members[0].port) as proxy, Asker(f"etcd://127.0.0.1:{proxy.port},{etcd.hosts}") as asker:
        asker.ask(put_request(b"once", b"0"))
        revision = asker.ask(range_request(b"once")).kvs[0].mod_revision
        proxy.loses = "answers"
        assert isinstance(asker.ask(swap_request(b"once", b"1", revision)), OutcomeUnknown)
        assert proxy.cuts == 1
        kv = asker.ask(range_request(b"once")).kvs[0]
        assert (kv.value, kv.version) == (b"1", 2)


def test_names_are_looked_up_and_one_without_an_address_is_told(etcd: Etcd) -> None:
    with Asker(f"etcd://nobody.invalid,localhost:{etcd.members[1].port}?insecure=true") as asker:
        assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)
    with Asker("etcd://nobody.invalid?insecure=true") as asker:
        assert "its name has no address" in str(asker.ask(range_request(b"k"), seconds=1.0))


class Elsewhere(BaseHTTPRequestHandler):
    """Some other HTTP server."""

    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def test_another_server_at_the_port_is_recognised() -> None:
    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with Asker(f"etcd://127.0.0.1:{server.server_port}") as asker:
            assert "is it etcd's port for clients" in str(asker.ask(range_request(b"k"), seconds=0.5))
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_port_that_speaks_something_else_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener,))
        thread.start()
        with Asker(f"etcd://127.0.0.1:{listener.getsockname()[1]}") as asker:
            assert "it does not speak HTTP there" in str(asker.ask(range_request(b"k"), seconds=0.4))
        thread.join()


def greet(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.sendall(b"220 mail.example ESMTP\r\n\r\n")
        while connection.recv(1000):
            pass
