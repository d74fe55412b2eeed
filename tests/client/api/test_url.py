"""URLs."""

import pytest

from shardmq.client.api.url import (
    DEFAULT_URL,
    NO_FILES,
    Address,
    TlsFiles,
    given_or_default,
    parse,
    parse_all,
    with_files,
)
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


@pytest.mark.parametrize("host", ["x" * 63 + ".example", "rooted.example.", "under_score", "bücher.example", "a-b"])
def test_a_host_may_have_any_name_that_can_have_an_address(host: str) -> None:
    assert parse(f"shardmq://{host}:1/").host == host


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert parse("shardmq://[::1]:99/").host == "::1"


def test_a_password_shows_in_no_text() -> None:
    assert "secret" not in f"{parse('shardmq://me:secret@host/')!r}"


@pytest.mark.parametrize(
    "url",
    [
        "http://host/",
        "host:5672",
        "",
        "shardmq://",
        "shardmq://host:x/",
        "shardmq://host:70000/",
        "shardmq://h/a/b",
        "shardmq://h/a?x=1",
        "shardmq://[::1/",
        "shardmq://good,bad..host/",
        "shardmq://.host/",
        f"shardmq://{'x' * 64}.example/",
        "shardmq://[bad..host]/",
    ],
)
def test_what_is_no_url_of_ours_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(InvalidRequest, match="shardmq://user:password@host:port/vhost"):
        parse(url)


@pytest.mark.parametrize(
    "url",
    [
        "shardmq://me:se?cret@h/v",
        "shardmq://me:12?cret=se@h/v",
        "shardmqs://me:12?verify=cret@h",
        "shardmq://me:se/cret@h/v",
        "shardmq://me:se#cret@h/v",
        "shardmq://me:se@a?cret@h/v",
        "shardmq://me:secret/v",
        "shardmq://me:secret\N{ACCOUNT OF}@h/v",
    ],
)
def test_what_may_be_of_a_password_shows_in_no_refusal(url: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(url)
    text = f"{refusal.value} {refusal.value.__cause__}"
    assert "cret" not in text
    assert "me:se" not in text
    assert "percent-encoded" in text or "@h" not in url or "\N{ACCOUNT OF}" in url


def test_several_hosts_and_several_urls_are_several_addresses() -> None:
    addresses = parse_all("shardmq://me:pw@a,b:99,[::1]:7/v")
    assert [(address.host, address.port, address.user, address.vhost) for address in addresses] == [
        ("a", 5672, "me", "v"),
        ("b", 99, "me", "v"),
        ("::1", 7, "me", "v"),
    ]
    assert [address.host for address in parse_all(["shardmq://a/", "shardmq://b,c/"])] == ["a", "b", "c"]
    with pytest.raises(InvalidRequest, match="at least one"):
        parse_all([])


def test_tls_has_a_scheme_and_a_port_of_its_own() -> None:
    assert (parse("shardmqs://a/").port, parse("shardmqs://a/").tls) == (5671, True)
    assert not parse("shardmq://a/").tls


def test_files_for_tls_stand_behind_a_question_mark() -> None:
    read = parse(
        "shardmqs://a/v?cacertfile=%2Fx%2Fca%20one.pem&certfile=/x/me.pem&keyfile=/x/me.key&verify=verify_none"
    )
    assert read.vhost == "v"
    assert read.files == TlsFiles("/x/ca one.pem", "/x/me.pem", "/x/me.key", is_verified=False)
    assert parse("shardmqs://a/?cafile=x").files == TlsFiles("x")
    assert parse("shardmqs://a/").files == NO_FILES
    external = parse("shardmqs://me:pw@a/?auth_mechanism=external&certfile=x")
    assert (external.user, external.password) == ("", "")


def test_files_are_added_to_a_url_and_replace_those_it_names() -> None:
    assert with_files("shardmq://a/", {}) == "shardmq://a/"
    added = with_files("shardmqs://u:p@a:1/v?cafile=old&certfile=b", {"cacertfile": "/n w", "keyfile": "/k"})
    assert added == "shardmqs://u:p@a:1/v?certfile=b&cacertfile=/n%20w&keyfile=/k"
    assert parse(added).files == TlsFiles("/n w", "b", "/k")
    with pytest.raises(InvalidRequest, match="shardmqs://"):
        with_files("shardmq://a/", {"certfile": "x"})


@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_a_url_of_an_amqp_client_means_what_the_native_one_does(scheme: str) -> None:
    native = scheme.replace("amqp", "shardmq")
    for rest in ("host", "me:secret@host:1234/v", "[::1]", "one,two:99/%2F"):
        assert parse_all(f"{scheme}://{rest}") == parse_all(f"{native}://{rest}")
    assert parse(f"{scheme}://host").port == {"amqp": 5672, "amqps": 5671}[scheme]


def test_without_a_url_it_is_the_environments_and_else_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARDMQ_URL", raising=False)
    assert given_or_default(None) == DEFAULT_URL
    monkeypatch.setenv("SHARDMQ_URL", "shardmq://elsewhere:99/v")
    assert given_or_default(None) == "shardmq://elsewhere:99/v"
    assert given_or_default("shardmq://here/") == "shardmq://here/"
    monkeypatch.setenv("SHARDMQ_URL", "")
    assert given_or_default(None) == DEFAULT_URL
