"""URLs are split as `urllib.parse` does it, but for the brackets of several hosts."""

from urllib.parse import urlsplit, urlunsplit

import pytest

from shardmq.urls import split_url


@pytest.mark.parametrize(
    "url",
    [
        "shardmq://me:p%40s@host:5672/v%2Fw?verify=verify_none#there",
        "amqps://[::1]:5671",
        "AMQP://",
        "amqp:///v",
        "//host/v",
        "host:5672",
        "/v",
        "",
        "  amqp://host/v\n",
        "amqp://ho\tst/v\r\n",
    ],
)
def test_others_are_split_as_ever(url: str) -> None:
    assert split_url(url) == urlsplit(url.strip())


@pytest.mark.parametrize("hosts", ["a,[::1]", "a:1,[::1]:2,[fe80::1]", "[::1],[::2]:5", "me:[pw]@a,[::1]:7"])
def test_any_host_may_have_brackets(hosts: str) -> None:
    url = f"shardmq://{hosts}/v?verify=verify_none"
    parts = split_url(url)
    assert (parts.scheme, parts.netloc, parts.path, parts.query) == ("shardmq", hosts, "/v", "verify=verify_none")
    assert urlunsplit(parts) == url


@pytest.mark.parametrize("hosts", ["[::1", "::1]", "a[::1]", "a,b[::1]:7", "[[::1]]", "[]", "[a,b]", "[::1]5"])
def test_brackets_are_around_addresses_alone(hosts: str) -> None:
    with pytest.raises(ValueError, match="brackets that are not around an IPv6 address"):
        split_url(f"amqp://me@{hosts}/v")


@pytest.mark.parametrize("url", ["amqp://a\N{ACCOUNT OF}b/v", "amqp://[::1],a\N{ACCOUNT OF}b/v"])
def test_what_urllib_refuses_in_names_of_hosts_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="NFKC"):
        split_url(url)
