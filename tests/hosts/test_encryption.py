"""Nothing that a broker on three hosts knows goes between hosts, or to etcd and within it, in plain text."""

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

import pytest

import shardmq
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.message.properties import Properties
from tests.hosts.deployed import DeployedBroker, DeployedEtcd
from tests.hosts.hosts import CLIENT, CLIENT_PORT, MEMBERS, NAMES, Hosts
from tests.hosts.listening import Listener, Stream, packet_socket, streams, words_in
from tests.hosts.members import Member
from tests.running import without

WORDS: Final = {
    "a virtual host": "legal-department",
    "a user": "marguerite",
    "a password": "correct-horse-battery",
    "an exchange": "board-of-directors",
    "a queue": "mergers-with-initech",
    "another queue": "takeovers-of-hooli",
    "a routing key": "acquisitions.hostile",
    "a topic": "salaries-by-name",
    "a key of a topic": "vice-president",
    "a message of a topic": "ninety-thousand-a-year",
    "a group": "auditors-of-salaries",
    "a body": "we-offer-twelve-a-share",
    "a large body": "due-diligence-report",
    "a header": "seen-by-counsel",
    "a header's value": "whistleblower",
    "a transaction": "closing-of-the-deal",
    "a message of a transaction": "signed-on-the-last-page",
    "a message after a failover": "deny-everything",
}
"""What clients tell the broker, by what it is."""

OF_ETCD: Final = {"a password": "another-secret", "the broker's password": "secret", "a key": "/orders/groups/"}
"""As docs/operations/etcd.md has them."""

ALL: Final = WORDS | {f"etcd: {what}": word for what, word in OF_ETCD.items()}

LARGE_BYTES: Final = 2_000_000
GUEST: Final = "shardmq://guest:guest@127.0.0.1/"
STRAY_PORT: Final = 9
WAIT_SECONDS: Final = 60.0


@pytest.fixture(scope="module")
def listener_and_broker() -> Iterator[tuple[Listener, DeployedBroker]]:
    """All is listened to before etcd starts, and gets its users."""
    with ExitStack() as stack:

        def etcd_of(members: Sequence[Member]) -> DeployedEtcd:
            with hosts.network.on_bridge():
                listeners.append(stack.enter_context(Listener(packet_socket())))
            return DeployedEtcd(members)

        listeners: list[Listener] = []
        hosts = Hosts(etcd_of)
        try:
            stack.enter_context(hosts)
        except Absent as reason:
            without(reason)
        broker = DeployedBroker(hosts, "broker")
        try:
            broker.start(*NAMES)
            yield listeners[0], broker
        finally:
            print(broker.last_words())


def make_user(broker: DeployedBroker) -> None:
    """Make virtual host and user on a host that does not lead the coordinator."""
    host = min({*NAMES} - {broker.group("coordinator")["primary"]})
    with broker.hosts[host].inside(), shardmq.connect(GUEST, timeout=WAIT_SECONDS) as connection:
        connection.vhost_put(WORDS["a virtual host"])
        connection.user_put(WORDS["a user"], WORDS["a password"], tags=["administrator"])
        connection.permission_put(WORDS["a user"], WORDS["a virtual host"], ".*", ".*", ".*")
        connection.permission_put(WORDS["a user"], "/", ".*", ".*", ".*")


def url(broker: DeployedBroker) -> str:
    """Of the user in the virtual host."""
    return broker.url.replace("app:secret", f"{WORDS['a user']}:{WORDS['a password']}") + WORDS["a virtual host"]


def use(connection: shardmq.Connection) -> None:
    """Declare, publish, consume, and commit offsets with a transaction."""
    channel = connection.channel()
    exchange, key = WORDS["an exchange"], WORDS["a routing key"]
    channel.exchange_declare(exchange, "topic", durable=True)
    queues = [WORDS["a queue"], WORDS["another queue"]]
    for queue in queues:
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, exchange, key)
    headers = Properties(headers={WORDS["a header"]: WORDS["a header's value"]})
    large = (WORDS["a large body"] + "/").encode() * (LARGE_BYTES // len(WORDS["a large body"]))
    for body in (WORDS["a body"].encode(), large):
        channel.basic_publish(exchange, key, body, headers, mandatory=True)
    for queue in queues:
        message = channel.basic_get(queue)
        assert message is not None
        assert message.body == WORDS["a body"].encode()
        message.nack(requeue=True)

    topic, group = WORDS["a topic"], WORDS["a group"]
    channel.topic_declare(topic, 4)
    channel.basic_publish(topic, WORDS["a key of a topic"], WORDS["a message of a topic"].encode())
    with channel.group_consumer(topic, group, start="earliest", auto_commit=False) as consumer:
        assert [message.body.decode() for message in consumer.poll(WAIT_SECONDS)] == [WORDS["a message of a topic"]]
        with channel.transaction(WORDS["a transaction"]) as transaction:
            transaction.publish(exchange, key, WORDS["a message of a transaction"].encode())
            transaction.commit_offsets(consumer)
    assert {row["lag"] for row in channel.group_offsets(topic, group)} == {0}


def bodies(connection: shardmq.Connection, queue: str) -> list[str]:
    """Take all messages of a queue; returns their first words."""
    with connection.channel() as channel:
        messages = channel.consume(queue, inactivity_timeout=1.0)
        found = []
        for message in messages:
            found.append(message.body.decode().partition("/")[0])
            message.ack()
        return found


def fail_over(broker: DeployedBroker) -> None:
    """Kill who leads a shard; the host comes back, and the copies of both shards get another home."""
    victim = broker.group("shard-0")["primary"]
    broker.kill(victim)
    broker.wait_for(lambda: broker.group("shard-0")["primary"] != victim, "another host leads")
    with broker.hosts[CLIENT].inside(), shardmq.connect(url(broker), timeout=WAIT_SECONDS) as connection:
        body = WORDS["a message after a failover"].encode()
        connection.channel().basic_publish(WORDS["an exchange"], WORDS["a routing key"], body)
    broker.start(victim)
    broker.wait_for(broker.is_whole, "the host is in sync again")
    for shard in ("shard-0", "shard-1"):
        group = broker.group(shard)
        (target,) = {*NAMES} - {*group["replicas"]}
        source = min({*group["replicas"]} - {group["primary"]})
        assert broker.told("shard", "move", shard, source, target, "--wait", "60")["done"]
    broker.wait_for(broker.is_whole, "all groups are whole")


def say_it_plainly(broker: DeployedBroker) -> None:
    """Send all words from one host to another, and to a member of etcd, over TCP: they must be heard."""
    said = "\n".join(ALL.values()).encode()
    receiver = broker.hosts["b"]
    with receiver.inside():
        server = socket.create_server((receiver.address, STRAY_PORT))
    with server, broker.hosts["a"].inside():
        member = broker.hosts.etcd.members[0]
        for address in (server.getsockname(), (member.host, CLIENT_PORT)):
            with socket.create_connection(address, WAIT_SECONDS) as sock:
                sock.sendall(said)


class Heard:
    """What was said between whom.

    Args:
        broker: with the hosts.
        listener: heard it.
    """

    def __init__(self, broker: DeployedBroker, listener: Listener) -> None:
        self.frames = listener.frames()
        self.streams = streams(self.frames)
        namespaces = broker.hosts.network.namespaces
        self._names = {namespace.address: name for name, namespace in namespaces.items()}
        self._clients = namespaces[CLIENT].mac

    def between(self, sender: str, receiver: str) -> list[Stream]:
        """Bytes of all connections that one host sent to another one."""
        return [each for each in self.streams if self._pair(each) == (sender, receiver)]

    def inner(self) -> list[Stream]:
        """All that hosts and members of etcd said to one another, and operators to etcd; clients left aside."""
        return [each for each in self.streams if not (CLIENT in self._pair(each) and {*NAMES} & {*self._pair(each)})]

    def inner_frames(self) -> list[bytes]:
        """Frames that are neither to the client nor from it, of whatever protocol."""
        client = bytes.fromhex(self._clients.replace(":", ""))
        return [frame for frame in self.frames if client not in (frame[:6], frame[6:12])]

    def _pair(self, stream: Stream) -> tuple[str, str]:
        return self._names[stream.way.sender], self._names[stream.way.receiver]


def test_nothing_is_said_plainly_between_hosts_and_to_etcd(
    listener_and_broker: tuple[Listener, DeployedBroker],
) -> None:
    listener, broker = listener_and_broker
    broker.wait_for(broker.is_whole, "all groups are whole")
    make_user(broker)
    with broker.hosts[CLIENT].inside(), shardmq.connect(url(broker), timeout=WAIT_SECONDS) as connection:
        use(connection)
    fail_over(broker)
    with broker.hosts[CLIENT].inside(), shardmq.connect(url(broker), timeout=WAIT_SECONDS) as connection:
        kept = {"a body", "a large body", "a message of a transaction", "a message after a failover"}
        for queue in ("a queue", "another queue"):
            assert Counter(bodies(connection, WORDS[queue])) == Counter(WORDS[what] for what in kept)

    heard = Heard(broker, listener)
    inner = heard.inner()
    assert all(stream.is_whole for stream in inner)
    print(Counter(stream.protocol for stream in inner), sum(len(stream.data) for stream in inner), "bytes")
    for stream in inner:
        assert not words_in(stream.data, ALL), stream.way
        assert stream.protocol in ("CURVE", "TLS"), (stream.way, stream.data[:100])
    assert not words_in(b"\0".join(heard.inner_frames()), ALL)

    for sender in (*NAMES, CLIENT):
        asked = [stream for member in MEMBERS for stream in heard.between(sender, member)]
        assert {stream.protocol for stream in asked} == {"TLS"}
    for sender in NAMES:
        for receiver in {*NAMES} - {sender}:
            assert {stream.protocol for stream in heard.between(sender, receiver)} == {"CURVE"}
    for sender in MEMBERS:
        for receiver in {*MEMBERS} - {sender}:
            assert {stream.protocol for stream in heard.between(sender, receiver)} == {"TLS"}
    copied = sum(len(stream.data) for stream in inner if stream.protocol == "CURVE")
    assert copied > 3 * 2 * LARGE_BYTES, "two queues, each with a large body: to a second host, and then to a third one"

    by_clients = [stream.data for name in NAMES for stream in heard.between(CLIENT, name)]
    assert set().union(*(words_in(data, WORDS) for data in by_clients)) == WORDS.keys(), "clients speak plainly"
    say_it_plainly(broker)
    broker.wait_for(
        lambda: sum(words_in(stream.data, ALL) == ALL.keys() for stream in Heard(broker, listener).inner()) == 2,
        "what is said plainly between hosts and to etcd is heard",
    )
