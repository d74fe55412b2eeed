"""URLs."""

import pytest

from shardmq.client.url import Address, parse
from shardmq.errors import InvalidRequest


@pytest.mark.parametrize("path", ["", "/", "/%2F", "/%2f"])
def test_no_path_a_slash_and_an_escaped_slash_are_the_default_virtual_host(path: str) -> None:
    assert parse(f"shardmq://guest:guest@127.0.0.1:5672{path}").vhost == "/"


def test_every_part_is_read_and_unescaped() -> None:
    assert parse("shardmq://us%40er:p%3Ass@host.example:1234/my%2Fhost") == Address(
        "host.example", 1234, "us@er", "p:ss", "my/host"
    )


def test_only_the_host_is_needed() -> None:
    assert parse("shardmq://localhost") == Address("localhost", 5672, "guest", "guest", "/")


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert parse("shardmq://[::1]:99/").host == "::1"


def test_a_password_shows_in_no_text() -> None:
    assert "secret" not in f"{parse('shardmq://me:secret@host/')!r}"


@pytest.mark.parametrize(
    "url",
    ["amqp://host/", "host:5672", "", "shardmq://", "shardmq://host:x/", "shardmq://host:70000/", "shardmq://h/a/b",
     "shardmq://h/a?x=1", "shardmq://[::1/"],
)  # fmt: skip
def test_what_is_no_url_of_ours_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(InvalidRequest, match="shardmq://user:password@host:port/vhost"):
        parse(url)
