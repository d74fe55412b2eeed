"""What a client that recovers finds again: its own queues, also the exclusive ones, and its place."""

import contextlib
import socket
import threading
from typing import Any, Self

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, numbers, publish_all, until

QUICK = shardmq.Recovery(first_seconds=0.05, max_seconds=0.5)


def test_exclusive_queues_come_back_the_servers_with_a_new_name(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, recovery=QUICK, timeout=40) as connection:
        recovered: list[shardmq.Recovered] = []
        back = threading.Event()
        connection.on_recovery(lambda what: (recovered.append(what), back.set()))
        channel = connection.channel()
        old = channel.queue_declare(exclusive=True).queue
        channel.queue_declare("mine", exclusive=True)
        channel.queue_bind(old, "amq.topic", "a.#")
        messages = channel.consume(old)
        broker.kill("gateway-0")
        assert back.wait(40)  # the coordinator waits for ten seconds until the dead gateway's queues are nobody's
        [what] = recovered
        assert what.failed == []
        assert set(what.renamed) == {old}
        channel.basic_publish("amq.topic", "a.b", b"found")
        assert next(messages).body == b"found"
        assert channel.queue_declare("mine", exclusive=True).messages == 0
        names = {table["name"] for table in connection.topology("queues")}
        assert names == {"mine", what.renamed[old]}


class CutNetwork:
    """A network between clients and a gateway, which hears nothing of a cut until it is mended.

    Args:
        port: of the gateway.

    Attributes:
        url: for clients.
    """

    def __init__(self, port: int) -> None:
        self._gateway = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._clients: list[socket.socket] = []
        self._cut: list[socket.socket] = []
        self.url = f"shardmq://guest:guest@127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with contextlib.suppress(OSError):  # they are closed
            self.mend()

    def cut(self) -> None:
        """Have the clients lose their connections, which the gateway keeps."""
        while self._clients:
            self._clients.pop().shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Have the gateway notice what was cut."""
        while self._cut:
            self._cut.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                gateway = socket.create_connection(("127.0.0.1", self._gateway))
                self._clients.append(client)
                threading.Thread(target=self._pass_on, args=(client, gateway), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(gateway, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, gateway: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                gateway.sendall(data)
        self._cut.append(gateway)

    def _pass_back(self, gateway: socket.socket, client: socket.socket) -> None:
        with gateway, contextlib.suppress(OSError):
            while data := gateway.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)


def test_an_exclusive_consumer_comes_back_once_the_gateway_knows_that_the_old_one_is_gone(broker: Broker) -> None:
    with (
        CutNetwork(broker.port) as network,
        shardmq.connect(network.url, recovery=QUICK, timeout=40) as connection,
    ):
        recovered: list[shardmq.Recovered] = []
        back = threading.Event()
        connection.on_recovery(lambda what: (recovered.append(what), back.set()))
        channel = connection.channel()
        channel.queue_declare("alone")
        messages = channel.consume("alone", exclusive=True)
        network.cut()
        assert back.wait(40), "all else goes on"
        assert recovered[0].failed == []
        until(lambda: connection._core.is_pausing, "the new consumer is refused")
        channel.basic_publish("", channel.queue_declare().queue, b"elsewhere", mandatory=True)
        network.mend()
        channel.basic_publish("", "alone", b"1")
        assert next(messages).body == b"1"
        channel.queue_delete("alone")


def test_queues_that_live_by_their_consumers_outlive_the_loss_of_a_connection(start_broker: StartBroker) -> None:
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, recovery=QUICK, timeout=40) as connection:
        recovered: list[shardmq.Recovered] = []
        back = threading.Event()
        connection.on_recovery(lambda what: (recovered.append(what), back.set()))
        channel = connection.channel()
        came: list[tuple[str, bytes]] = []
        lock = threading.Lock()

        def consume(queue: str, tag: str, **settings: Any) -> None:
            def handle(message: shardmq.Message) -> None:
                with lock:
                    came.append((tag, message.body))
                message.ack()

            channel.basic_consume(queue, handle, consumer_tag=tag, **settings)

        channel.queue_declare("auto", auto_delete=True)
        channel.queue_declare("expiring", arguments={"x-expires": 3000})
        channel.queue_declare("single", durable=True, arguments={"x-single-active-consumer": True})
        channel.queue_declare("kept")
        server_named = channel.queue_declare().queue
        channel.exchange_declare("passing", "fanout", auto_delete=True)
        channel.exchange_declare("feeding", "fanout")
        channel.exchange_bind("passing", "feeding")
        channel.queue_bind("auto", "passing")
        consume("auto", "auto")
        consume("expiring", "expiring")
        consume("single", "first")
        consume("single", "second")
        consume("kept", "alone", exclusive=True)
        publish_all(channel, server_named, numbers(0, 3))
        broker.kill("gateway-0")
        assert back.wait(40)
        assert recovered[0].failed == []
        assert recovered[0].renamed == {}
        for exchange, key in (("feeding", ""), ("", "expiring"), ("", "single"), ("", "kept")):
            channel.basic_publish(exchange, key, key.encode() or b"passed on", mandatory=True)
        until(lambda: len(came) == 4, "all consumers are back")
        assert sorted(came) == [
            ("alone", b"kept"),
            ("auto", b"passed on"),
            ("expiring", b"expiring"),
            ("first", b"single"),
        ]
        assert bodies(channel, server_named) == numbers(0, 3)
        with pytest.raises(errors.AccessRefused, match="exclusive"):
            channel.basic_consume("kept", lambda _: None)
        broker.kill_everything()
        back.clear()
        broker.start()
        assert back.wait(40)
        channel.basic_publish("feeding", "", b"in another life", mandatory=True)
        until(lambda: ("auto", b"in another life") in came, "all of it was made again")
        assert list(recovered[-1].renamed) == [server_named]


def test_who_is_expelled_comes_again(broker: Broker) -> None:
    with shardmq.connect(broker.url) as admin, shardmq.connect(broker.url, recovery=QUICK) as connection:
        back = threading.Event()
        connection.on_recovery(lambda _: back.set())
        channel = connection.channel()
        channel.queue_declare("expelled")
        publish_all(channel, "expelled", numbers(0, 3))
        mine = max(admin.topology("connections"), key=lambda table: table["connected_at"])
        admin.connection_expel(mine["name"], "maintenance")
        assert back.wait(20)
        assert bodies(channel, "expelled") == numbers(0, 3)
        channel.queue_delete("expelled")


def test_who_is_deleted_does_not(broker: Broker) -> None:
    with shardmq.connect(broker.url) as admin:
        admin.user_put("leaving", password="secret")
        admin.permission_put("leaving", "/", ".*", ".*", ".*")
        url = broker.url.replace("guest:guest", "leaving:secret")
        with shardmq.connect(url, recovery=QUICK) as connection:
            admin.user_delete("leaving")
            until(lambda: not connection.is_open, "the recovery ends")


def test_dead_lettered_headers_and_delivery_counts_are_in_the_properties(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("graves")
        limits = {"x-delivery-limit": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
        channel.queue_declare("limited", arguments=limits)
        channel.basic_publish("", "limited", b"x", shardmq.Properties(headers={"mine": 1}))
        for count in range(3):
            message = channel.basic_get("limited")
            assert message is not None
            assert message.deliveries == count
            headers = message.properties.headers or {}
            assert headers.get("x-delivery-count") == (count or None)
            assert headers["mine"] == 1
            message.nack()
        dead = until(lambda: channel.basic_get("graves", auto_ack=True), "it is buried")
        [death] = dead.properties.headers["x-death"]
        assert (death["reason"], death["queue"], death["count"]) == ("delivery_limit", "limited", 1)
        channel.queue_delete("graves")
        channel.queue_delete("limited")
