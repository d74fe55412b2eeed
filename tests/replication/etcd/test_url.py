"""URLs of etcd, read and refused."""

import pytest

from shardmq.replication.etcd.errors import InvalidUrl
from shardmq.replication.etcd.url import Endpoint, parse


def test_a_url_names_members_a_user_and_a_prefix() -> None:
    url = parse("etcd://me:p%40ss@a:2379,b:2380,[::1]/prod/mq?insecure=true")
    assert url.endpoints == (Endpoint("a", 2379), Endpoint("b", 2380), Endpoint("::1", 2379))
    assert (url.user, url.password, url.prefix, url.is_tls) == ("me", "p@ss", "prod/mq", False)


def test_the_password_shows_in_no_text() -> None:
    assert str(parse("etcds://me:secret@a")) == "etcds://a:2379/shardmq"
    assert "secret" not in repr(parse("etcds://me:secret@a"))


def test_a_url_with_tls_names_files() -> None:
    url = parse("etcds://a/p?cacertfile=/c/a.pem&certfile=me.pem&keyfile=me.key")
    assert (url.is_tls, url.authorities, url.certificate, url.key) == (True, "/c/a.pem", "me.pem", "me.key")


def test_members_on_this_machine_need_no_tls_and_others_need_a_word() -> None:
    for url in ("etcd://127.0.0.1", "etcd://127.77.3.1,localhost,[::1]:2380/p", "etcd://10.0.0.11/p?insecure=true"):
        assert not parse(url).is_tls


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://a:2379", "neither etcd:// nor etcds://"),
        ("etcd://a:0", "'a:0' is no host with a port"),
        ("etcd://a:99999", "'a:99999' is no host with a port"),
        ("etcd://a,,b", "'' is no host with a port"),
        ("etcd://me@a", "a user without a password"),
        ("etcd://a/b//c", "the prefix in the URL"),
        ("etcd://a/b#c", "the prefix in the URL"),
        ("etcd://a?cacertfile=x", "is for TLS"),
        ("etcds://a?keyfile=x", "no certfile"),
        ("etcd://127.0.0.1,10.0.0.11/p", "etcd:// is not encrypted, and 10.0.0.11:2379 is not on this machine"),
        ("etcd://me:p@etcd-1/p", "write etcds:// with ?cacertfile=…, or end the URL with ?insecure=true"),
        ("etcd://10.0.0.11/p?insecure=yes", "'insecure=yes' means nothing there"),
        ("etcds://10.0.0.11/p?insecure=true", "insecure=true is for etcd://, and this is etcds://"),
        ("etcds://a?colour=x", "'colour=x' means nothing there"),
    ],
)
def test_what_is_no_url_is_refused_with_its_reason(url: str, said: str) -> None:
    with pytest.raises(InvalidUrl) as refusal:
        parse(url)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "etcds://me:se?cret@h/orders",
        "etcds://me:12?cret=se@h/orders",
        "etcds://me:12?cret@h/orders",
        "etcds://me:12/cret@h/orders",
        "etcds://me:12#cret@h/orders",
        "etcds://me:se@a?cret@h/orders",
        "etcds://me:secret/orders",
        "etcds://me:secret\N{ACCOUNT OF}@h/orders",
    ],
)
def test_what_may_be_of_a_password_shows_in_no_refusal(url: str) -> None:
    with pytest.raises(InvalidUrl) as refusal:
        parse(url)
    text = f"{refusal.value} {refusal.value.__cause__}"
    assert "cret" not in text
    assert "me:se" not in text
    assert "percent-encoded" in text or "@h" not in url or "\N{ACCOUNT OF}" in url
