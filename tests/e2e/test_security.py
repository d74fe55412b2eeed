"""Virtual hosts, users, permissions and limits, as a client meets them."""

from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .traffic import bodies, until


def url(broker: Broker, user: str, vhost: str = "/") -> str:
    return f"shardmq://{user}:secret@127.0.0.1:{broker.port}/{'' if vhost == '/' else vhost}"


@pytest.fixture(scope="module")
def admin(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        connection.vhost_put("shop", description="orders and bills")
        connection.user_put("clerk", password="secret")
        connection.permission_put("clerk", "shop", configure="^mine", write="^(mine|amq\\.default$)", read="^mine")
        yield connection


@pytest.fixture
def clerk(broker: Broker, admin: shardmq.Connection) -> Iterator[shardmq.Channel]:
    assert admin.is_open
    with shardmq.connect(url(broker, "clerk", "shop")) as connection:
        yield connection.channel()


def test_virtual_hosts_have_nothing_in_common(clerk: shardmq.Channel, channel: shardmq.Channel) -> None:
    clerk.queue_declare("mine.shared", durable=True)
    channel.queue_declare("mine.shared", durable=True)
    channel.basic_publish("", "mine.shared", b"in /")
    clerk.basic_publish("", "mine.shared", b"in shop")
    assert bodies(clerk, "mine.shared") == [b"in shop"]
    assert bodies(channel, "mine.shared") == [b"in /"]


@pytest.mark.parametrize(
    ("verb", "attempt"),
    [
        ("configure", lambda channel: channel.queue_declare("theirs")),
        ("configure", lambda channel: channel.exchange_declare("theirs")),
        ("configure", lambda channel: channel.queue_delete("theirs")),
        ("configure", lambda channel: channel.exchange_delete("theirs")),
        ("write", lambda channel: channel.basic_publish("amq.topic", "k", b"")),
        ("write", lambda channel: channel.queue_bind("theirs", "amq.topic", "k")),
        ("read", lambda channel: channel.queue_bind("mine.bound", "amq.topic", "k")),
        ("read", lambda channel: channel.basic_get("theirs")),
        ("read", lambda channel: channel.queue_purge("theirs")),
        ("read", lambda channel: channel.queue_peek("theirs")),
        ("read", lambda channel: next(iter(channel.consume("theirs")))),
        ("write", lambda channel: channel.queue_declare("mine.dl", arguments={"x-dead-letter-exchange": "theirs"})),
        ("write", lambda channel: channel.exchange_declare("mine.ae", arguments={"alternate-exchange": "theirs"})),
    ],
)
def test_what_is_not_permitted_is_refused_with_403(
    broker: Broker,
    clerk: shardmq.Channel,
    verb: str,
    attempt: Callable[[shardmq.Channel], object],
) -> None:
    with shardmq.connect(f"shardmq://guest:guest@127.0.0.1:{broker.port}/") as connection:
        connection.permission_put("guest", "shop", ".*", ".*", ".*")
    with shardmq.connect(f"shardmq://guest:guest@127.0.0.1:{broker.port}/shop") as owner:
        for name in ("theirs", "mine.bound"):
            owner.channel().queue_declare(name, durable=True)
    with pytest.raises(errors.AccessRefused, match=rf"{verb}.*'clerk'"):
        attempt(clerk)
    assert clerk.is_open


@pytest.mark.parametrize(
    "attempt",
    [
        lambda connection: connection.user_put("more", password="x"),
        lambda connection: connection.vhost_put("more"),
        lambda connection: connection.vhost_delete("shop"),
        lambda connection: connection.user_delete("guest"),
        lambda connection: connection.permission_put("clerk", "/", ".*", ".*", ".*"),
        lambda connection: connection.definitions_export(),
        lambda connection: connection.definitions_import({}),
        lambda connection: connection.connection_expel("x"),
    ],
)
def test_only_administrators_administer(
    broker: Broker, admin: shardmq.Connection, attempt: Callable[[shardmq.Connection], object]
) -> None:
    assert admin.is_open
    with shardmq.connect(url(broker, "clerk", "shop")) as connection, pytest.raises(errors.AccessRefused):
        attempt(connection)


def test_a_virtual_host_without_a_permission_cannot_be_opened(broker: Broker, admin: shardmq.Connection) -> None:
    assert admin.is_open
    with pytest.raises(errors.AuthenticationFailed, match="vhost '/' refused for user 'clerk'") as refused:
        shardmq.connect(url(broker, "clerk"))
    assert refused.value.code == errors.ReplyCode.NOT_ALLOWED


def test_a_changed_permission_counts_at_once(broker: Broker, admin: shardmq.Connection) -> None:
    admin.user_put("temp", password="secret")
    admin.permission_put("temp", "/", "^temp", "", "")
    with shardmq.connect(url(broker, "temp")) as connection:
        channel = connection.channel()
        channel.queue_declare("temp.q")
        with pytest.raises(errors.AccessRefused):
            channel.basic_publish("", "temp.q", b"no")
        admin.permission_put("temp", "/", "", "^amq\\.default$", "")
        channel.basic_publish("", "temp.q", b"yes")
        with pytest.raises(errors.AccessRefused):
            channel.queue_delete("temp.q")


def test_deleting_a_user_closes_its_connections(broker: Broker, admin: shardmq.Connection) -> None:
    admin.user_put("leaver", password="secret")
    admin.permission_put("leaver", "/", ".*", ".*", ".*")
    connection = shardmq.connect(url(broker, "leaver"), recovery=None)
    admin.user_delete("leaver")
    until(lambda: not connection.is_open, "the connection is closed")
    connection.close()
    with pytest.raises(errors.AuthenticationFailed):
        shardmq.connect(url(broker, "leaver"))


def test_deleting_a_virtual_host_takes_everything_in_it(broker: Broker, admin: shardmq.Connection) -> None:
    admin.vhost_put("doomed")
    admin.permission_put("guest", "doomed", ".*", ".*", ".*")
    doomed = f"shardmq://guest:guest@127.0.0.1:{broker.port}/doomed"
    connection = shardmq.connect(doomed, recovery=None)
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.exchange_declare("e", "topic", durable=True)
    channel.queue_bind("q", "e", "#")
    channel.basic_publish("e", "x", b"gone")
    admin.vhost_delete("doomed")
    until(lambda: not connection.is_open, "the connection is closed")
    connection.close()
    with pytest.raises(errors.AuthenticationFailed):
        shardmq.connect(doomed)
    admin.vhost_put("doomed")
    admin.permission_put("guest", "doomed", ".*", ".*", ".*")
    with shardmq.connect(doomed) as again, pytest.raises(errors.NotFound):
        again.channel().queue_declare("q", passive=True)


def test_limits_hold(broker: Broker, admin: shardmq.Connection) -> None:
    admin.vhost_put("small")
    admin.permission_put("guest", "small", ".*", ".*", ".*")
    admin.limits_put("vhost", "small", {"max-connections": 1, "max-queues": 2})
    small = f"shardmq://guest:guest@127.0.0.1:{broker.port}/small"
    with shardmq.connect(small) as connection:
        with pytest.raises(errors.AuthenticationFailed, match=r"connection limit \(1\)"):
            shardmq.connect(small)
        channel = connection.channel()
        channel.queue_declare("a")
        channel.queue_declare("b")
        channel.queue_declare("b")
        with pytest.raises(errors.PreconditionFailed, match=r"queue limit.*\(2\)"):
            channel.queue_declare("c")
    admin.user_put("few", password="secret")
    admin.permission_put("few", "/", ".*", ".*", ".*")
    admin.limits_put("user", "few", {"max-channels": 2})
    with shardmq.connect(url(broker, "few")) as connection:
        connection.channel()
        connection.channel()
        with pytest.raises(errors.ShardmqError, match="2"):
            connection.channel()


def test_passwords_are_kept_as_hashes(admin: shardmq.Connection) -> None:
    (clerk,) = [user for user in admin.topology("users") if user["name"] == "clerk"]
    assert clerk["password_hash"].startswith("scrypt")
    assert "secret" not in str(clerk)


def test_a_connection_can_be_closed_from_outside(broker: Broker, admin: shardmq.Connection) -> None:
    connection = shardmq.connect(broker.url, recovery=None)
    connection.channel()
    known = {table["name"] for table in admin.topology("connections")}
    assert len(known) >= 2
    mine = max(admin.topology("connections"), key=lambda table: table["connected_at"])
    admin.connection_expel(mine["name"], "maintenance")
    until(lambda: not connection.is_open, "the connection is closed")
    with pytest.raises(errors.ConnectionFault, match="maintenance"):
        connection.channel()
    connection.close()
