"""What users who do not see all are not told, and what no log has."""

from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused


@pytest.fixture
def guarded(managed: Broker, admin: Browser) -> Iterator[Browser]:
    """Asks as a user with the tag management alone, who consumes from a queue, as guest does."""
    admin.put("/users/clerk", {"password": "pw-of-clerk", "tags": "management"})
    admin.put("/permissions/%2F/clerk", {"configure": ".*", "write": ".*", "read": ".*"})
    own = managed.url.replace("guest:guest", "clerk:pw-of-clerk")
    with shardmq.connect(managed.url) as theirs, shardmq.connect(own) as mine:
        for connection in (theirs, mine):
            channel = connection.channel()
            channel.queue_declare("shared")
            channel.basic_consume("shared", print)
        with Browser(managed.management_url, "clerk", "pw-of-clerk") as browser:
            yield browser
    admin.delete("/users/clerk")
    admin.delete("/queues/%2F/shared")


def test_addresses_of_others_consumers_are_told_to_those_alone_who_see_all(admin: Browser, guarded: Browser) -> None:
    paths = ("/consumers", "/consumers/%2F", "/queues/%2F/shared")
    for path in paths:
        for browser, seen in ((guarded, {"clerk"}), (admin, {"clerk", "guest"})):
            found = browser.get(path)
            rows = found["consumer_details"] if isinstance(found, dict) else found
            details = {row["channel_details"]["user"]: row["channel_details"] for row in rows}
            assert details.keys() == {"clerk", "guest"}
            assert {user for user, row in details.items() if {"peer_host", "peer_port"} & row.keys()} == seen
            assert all(details[user]["peer_port"] > 0 for user in seen)


def test_a_password_to_be_hashed_is_in_no_log(managed: Broker, admin: Browser) -> None:
    assert admin.get("/auth/hash_password/never-logged")["ok"]
    with Browser(managed.management_url, "guest", "typo") as mistyped, pytest.raises(Refused) as refused:
        mistyped.get("/auth/hash_password/never-logged?x=never-logged")
    assert refused.value.status == 401
    log = managed.log.read_text()
    assert "user 'guest' from 127.0.0.1: refused: GET /api/auth/hash_password/{password}: 401" in log
    assert "never-logged" not in log
