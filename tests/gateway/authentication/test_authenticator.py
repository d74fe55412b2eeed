"""Guessing passwords is slow, and holds nobody else up. Real processes."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.gateway.authentication.failed_logins import COUNT_MAX, DELAY_SECONDS_MAX, FREE
from shardmq.gateway.authentication.login_queue import PLACES, WAIT_SECONDS_MAX
from shardmq.limits import HANDSHAKE_SECONDS
from shardmq.protocol.native.operations.administration import PermissionPut, UserPut
from shardmq.protocol.native.operations.connection import ConnectionOpen, StatusGet
from tests.gateway.authentication.guessers import guessing
from tests.gateway.rawclient import Denied, RawClient

LOGIN_SECONDS_MAX = DELAY_SECONDS_MAX / 5
"""Who waited behind those that guess would take several of their delays; the machine that runs the test may be busy."""
PROBES = 10
TRYING_SECONDS_MAX = 120


def counted(admin: RawClient, what: str = "refused") -> int:
    (row,) = [row for row in admin.ask(StatusGet)["processes"] if row["role"] == "gateway"]
    return int(row[f"logins_{what}"])


def seconds_to_log_in(broker: Broker, user: str, password: str) -> float:
    """How long a login takes, tries included that were refused on a busy machine and may be made again."""
    began = time.monotonic()
    while True:
        try:
            with RawClient(broker).open(user, password):
                return time.monotonic() - began
        except Denied as refused:
            if refused.code != ReplyCode.RESOURCE_ERROR or time.monotonic() - began > TRYING_SECONDS_MAX:
                raise


@pytest.mark.parametrize("kind", ["native", "amqp", "stranger"])
def test_logins_of_others_are_quick_while_two_dozen_guess(broker: Broker, kind: str) -> None:
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, f"new-{kind}", "secret")
        admin.ask(PermissionPut, f"new-{kind}", "/", ".*", ".*", ".*")
        before = counted(admin)
        with guessing(broker, kind):
            deadline = time.monotonic() + 30
            while counted(admin) - before < 2 * FREE:
                assert time.monotonic() < deadline
            known = [seconds_to_log_in(broker, "guest", "guest") for _ in range(PROBES)]
            new = [seconds_to_log_in(broker, f"new-{kind}", "secret") for _ in range(PROBES)]
    # the middle one of each: the machine that runs the test is not ours alone
    assert sorted(known)[PROBES // 2] < LOGIN_SECONDS_MAX, known
    assert sorted(new)[PROBES // 2] < LOGIN_SECONDS_MAX, new


def test_a_password_that_was_changed_is_wrong_at_once_and_the_new_one_right(broker: Broker) -> None:
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, "mover", "old")
        admin.ask(PermissionPut, "mover", "/", ".*", ".*", ".*")
        for old, new in (("old", "new"), ("new", "old")):
            with RawClient(broker).open("mover", old):
                pass
            admin.ask(UserPut, "mover", new)
            with pytest.raises(Denied):
                RawClient(broker).open("mover", old)
            with RawClient(broker).open("mover", new):
                pass


def test_who_does_not_wait_for_the_answer_tries_no_more_and_known_users_log_in(
    start_broker: Callable[..., Broker],
) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker).open() as admin:
        admin.ask(UserPut, "victim", "secret")
        with guessing(broker, "impatient"):
            deadline = time.monotonic() + 120  # on a busy machine few passwords are compared: they yield to all else
            while counted(admin, "delayed") < COUNT_MAX - FREE:
                assert time.monotonic() < deadline
            before, began = counted(admin, "delayed"), time.monotonic()
            known = [seconds_to_log_in(broker, "guest", "guest") for _ in range(PROBES)]
            while time.monotonic() - began < 3:
                time.sleep(0.1)
            tried = counted(admin, "delayed") - before
    assert sorted(known)[PROBES // 2] < LOGIN_SECONDS_MAX, known
    assert tried <= PLACES, tried  # over two dozen connections that hang up at once it would be hundreds


def test_a_delay_ends_within_the_handshake_and_is_counted(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    clients = [RawClient(broker) for _ in range(PLACES + 5)]
    began = time.monotonic()
    for client in clients:
        client.send(ConnectionOpen(1, 1, "nobody", "wrong", "/", 0))
    with RawClient(broker).open() as admin:
        state = admin.ask(StatusGet)["processes"]
    (row,) = [row for row in state if row["role"] == "gateway"]
    assert row["logins_waiting"] > 0
    codes = Counter(client.closing().code for client in clients)
    for client in clients:
        client.socket.close()
    # whose turn did not come in that time, as the machine is busy, is told to come again
    assert codes.keys() <= {ReplyCode.ACCESS_REFUSED, ReplyCode.RESOURCE_ERROR}
    assert codes[ReplyCode.ACCESS_REFUSED] > FREE
    # more of them than places; and who is not suspected yet waits for longer than a handshake
    assert DELAY_SECONDS_MAX / 2 < time.monotonic() - began < WAIT_SECONDS_MAX + HANDSHAKE_SECONDS
    with shardmq.connect(broker.url) as connection:
        (row,) = [row for row in connection.status()["processes"] if row["role"] == "gateway"]
    assert row["logins_refused"] == len(clients)
    assert row["logins_delayed"] <= codes[ReplyCode.ACCESS_REFUSED] - FREE
    assert row["logins_delayed"] >= codes[ReplyCode.ACCESS_REFUSED] - 2 * FREE


def test_refused_logins_are_summed_up_in_the_log(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    clients = [RawClient(broker) for _ in range(12)]
    for number, client in enumerate(clients):
        client.send(ConnectionOpen(1, 1, f"u{min(number, 8)}", "wrong", "/", 0))
    for client in clients:
        client.expect_close(ReplyCode.ACCESS_REFUSED)
        client.socket.close()
    broker.stop()
    logged = broker.log.read_text()
    assert logged.count("login of user") == 10
    (summary,) = [line for line in logged.splitlines() if "logins were refused" in line]
    assert "12 logins were refused, 2 of them without a line here: from 127.0.0.1 (12); as 'u8' (4), " in summary
    assert "4 other users (4)" in summary
