"""Users, virtual hosts, permissions and limits, on the command line."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]

Refused = Callable[..., str]
pytestmark = pytest.mark.usefixtures("at")


def opens(broker: Broker, user: str, password: str, vhost: str = "") -> bool:
    url = f"shardmq://{user}:{password}@127.0.0.1:{broker.port}/{vhost}"
    try:
        shardmq.connect(url).close()
    except errors.AuthenticationFailed:
        return False
    return True


def test_a_user_is_made_let_in_changed_and_removed(at: Broker, printed: Printed, parsed: Parsed) -> None:
    assert parsed("user", "add", "ann", "--password", "one", "--tag", "monitoring") == {"ok": True}
    assert not opens(at, "ann", "one"), "there is no permission yet"
    printed("permission", "set", "ann", "^ann", "", ".*")
    assert opens(at, "ann", "one")
    (permission,) = [row for row in parsed("permission", "list") if row["user"] == "ann"]
    assert (permission["configure"], permission["write"], permission["read"]) == ("^ann", "", ".*")
    printed("user", "password", "ann", "--password", "two")
    assert opens(at, "ann", "two")
    assert not opens(at, "ann", "one")
    printed("user", "tags", "ann", "management", "policymaker")
    (user,) = [row for row in parsed("user", "list") if row["name"] == "ann"]
    assert user["tags"] == ["management", "policymaker"]
    assert b"two" not in printed("user", "list") + printed("user", "list", "--json")
    printed("permission", "clear", "ann")
    assert not opens(at, "ann", "two")
    printed("user", "delete", "ann", "--yes")
    assert "ann" not in {row["name"] for row in parsed("user", "list")}


def test_a_password_comes_from_stdin_and_is_never_shown(at: Broker, parsed: Parsed) -> None:
    made = subprocess.run(
        command("user", "add", "bob"),
        env=environment(SHARDMQ_URL=at.url),
        input="hush\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "hush" not in made.stdout + made.stderr
    parsed("permission", "set", "bob", "", "", "")
    assert opens(at, "bob", "hush")


def test_a_user_without_a_password_is_not_made(at: Broker) -> None:
    refused = subprocess.run(
        command("user", "add", "nobody"),
        env=environment(SHARDMQ_URL=at.url),
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert refused.returncode == 2
    assert "--password" in refused.stderr


def test_slips_of_the_pen_make_no_users(printed: Printed, refused: Refused) -> None:
    printed("user", "add", "cleo", "--password", "x")
    assert "exists already" in refused("user", "add", "cleo", "--password", "y")
    assert "no user 'cloe'" in refused("user", "password", "cloe", "--password", "y")
    assert "no user 'cloe'" in refused("user", "tags", "cloe", "administrator")


def test_virtual_hosts_are_made_described_and_removed(at: Broker, printed: Printed, parsed: Parsed) -> None:
    printed("vhost", "add", "shop", "--description", "orders", "--tag", "live")
    (row,) = [row for row in parsed("vhost", "list") if row["name"] == "shop"]
    assert (row["description"], row["tags"]) == ("orders", ["live"])
    url = f"shardmq://guest:guest@127.0.0.1:{at.port}/shop"
    assert opens(at, "guest", "guest", "shop") or parsed("permission", "list")
    with shardmq.connect(at.url) as connection:
        connection.permission_put("guest", "shop", ".*", ".*", ".*")
    printed("queue", "declare", "orders", "--url", url)
    assert [row["name"] for row in parsed("queue", "list", "--url", url)] == ["orders"]
    assert "orders" not in {row["name"] for row in parsed("queue", "list")}
    printed("vhost", "delete", "shop", "--yes")
    assert "shop" not in {row["name"] for row in parsed("vhost", "list")}


def test_limits_are_set_shown_lifted_and_hold(at: Broker, printed: Printed, parsed: Parsed, refused: Refused) -> None:
    printed("user", "add", "dora", "--password", "d")
    printed("permission", "set", "dora", ".*", ".*", ".*")
    printed("user", "limits", "dora", "--limit", "max-connections=0")
    assert parsed("user", "limits", "dora") == {"max-connections": 0}
    assert not opens(at, "dora", "d")
    printed("user", "limits", "dora", "--limit", "max-connections=none", "--limit", "max-channels=5")
    assert printed("user", "limits", "dora") == b"max-channels 5\n"
    assert opens(at, "dora", "d")
    printed("vhost", "add", "small")
    printed("vhost", "limits", "small", "--limit", "max-queues=1")
    assert parsed("vhost", "limits", "small") == {"max-queues": 1}
    assert "no user 'eve'" in refused("user", "limits", "eve")
    assert "max-channels=NUMBER" in refused("user", "limits", "dora", "--limit", "max-channels=many", code=2)
    for most in ("9223372036854775808", "9" * 20, "9" * 5000):
        assert "max-channels=none" in refused("user", "limits", "dora", "--limit", f"max-channels={most}", code=2)
    printed("user", "limits", "dora", "--limit", "max-channels=9223372036854775807")


def test_who_is_no_administrator_is_refused_with_403(at: Broker, printed: Printed, refused: Refused) -> None:
    printed("user", "add", "fred", "--password", "f")
    printed("permission", "set", "fred", "", "", "")
    url = f"shardmq://fred:f@127.0.0.1:{at.port}/"
    assert "ACCESS_REFUSED" in refused("vhost", "add", "mine", "--url", url)
    assert "ACCESS_REFUSED" in refused("queue", "declare", "mine", "--url", url)
    assert "takes the tag 'administrator'" in refused("watermark", "--memory", "1GiB", "--url", url)
    assert "ACCESS_REFUSED" in refused("watermark", "--disk-free", "1GiB", "--url", url)


def test_who_made_a_virtual_host_can_let_users_in_without_opening_it(
    at: Broker, printed: Printed, parsed: Parsed
) -> None:
    printed("user", "add", "hank", "--password", "h")
    assert b"permission set --vhost harbour" in printed("vhost", "add", "harbour")
    printed("permission", "set", "hank", "^h", "", ".*", "--vhost", "harbour")
    assert opens(at, "hank", "h", "harbour")
    assert not opens(at, "hank", "h")
    (row,) = parsed("permission", "list", "-p", "harbour")
    assert (row["user"], row["vhost"], row["configure"]) == ("hank", "harbour", "^h")
    assert "harbour" in {row["vhost"] for row in parsed("permission", "list")}
    printed("permission", "clear", "hank", "-p", "harbour")
    assert not opens(at, "hank", "h", "harbour")


def test_a_virtual_host_is_not_deleted_unasked(at: Broker, parsed: Parsed) -> None:
    parsed("vhost", "add", "keep")
    refused = subprocess.run(
        command("vhost", "delete", "keep", "--json"),
        env=environment(SHARDMQ_URL=at.url),
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    assert "keep" in {row["name"] for row in parsed("vhost", "list")}
