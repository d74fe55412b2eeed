"""TLS on the command line and around it: its own address, no plain port, certificates of clients. Real processes."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

import shardmq
from shardmq import errors
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.run.locks import hold_port
from shardmq.cmd.run.notices import Notice
from shardmq.cmd.run.up import print_welcome

AUTHORITY = trustme.CA()
VARIABLES = ("SHARDMQ_TLS_CA", "SHARDMQ_TLS_CERT", "SHARDMQ_TLS_KEY")


class Files:
    """The authority's certificate, a server's and a client's, as files."""

    def __init__(self, folder: Path) -> None:
        self.ca = self._write(folder / "ca.pem", AUTHORITY.cert_pem.bytes())
        server = AUTHORITY.issue_cert("localhost", "127.0.0.1")
        self.server = self._write(folder / "server.pem", b"".join(blob.bytes() for blob in server.cert_chain_pems))
        self.server_key = self._write(folder / "server.key", server.private_key_pem.bytes())
        client = AUTHORITY.issue_cert("client.example", common_name="neil")
        self.client = self._write(folder / "client.pem", client.cert_chain_pems[0].bytes())
        self.client_key = self._write(folder / "client.key", client.private_key_pem.bytes())
        self.both = self._write(folder / "both.pem", client.private_key_and_cert_chain_pem.bytes())

    def _write(self, path: Path, content: bytes) -> str:
        path.write_bytes(content)
        return str(path)

    @property
    def options(self) -> list[str]:
        return ["--tls-cert", self.server, "--tls-key", self.server_key]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[tuple[Broker, int]]:
    """A broker without a plain port that wants clients' certificates; user neil, who has no password, is there."""
    folder = tmp_path_factory.mktemp("alone")
    with hold_port("127.0.0.1", 0) as port:
        options = ["--tls-port", str(port), *files.options, "--tls-ca", files.ca, "--tls-verify", "--no-plain"]
        broker = Broker(folder / "data", shards=1, options=options)
        try:
            broker.start()
            with shardmq.connect(whole(port, files)) as connection:
                connection.user_put("neil", None)
                connection.permission_put("neil", "/", ".*", ".*", ".*")
            yield broker, port
        finally:
            broker.close()
            print(broker.last_words())


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def url(port: int, query: str = "") -> str:
    return f"shardmqs://guest:guest@localhost:{port}/{query and '?'}{query}"


def whole(port: int, files: Files) -> str:
    return url(port, f"cacertfile={files.ca}&certfile={files.client}&keyfile={files.client_key}")


def is_open(port: int, host: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_without_a_plain_port_tls_is_the_only_way_and_the_notice_says_so(
    alone: tuple[Broker, int], files: Files
) -> None:
    broker, port = alone
    assert not is_open(broker.port)
    (up,) = [notice for notice in broker.notices if notice.event == "up"]
    assert (up.url, up.port, up.host) == (f"shardmqs://guest:guest@127.0.0.1:{port}/", None, None)
    assert (up.tls_host, up.tls_port, up.tls_verify) == ("127.0.0.1", port, True)
    with shardmq.connect(whole(port, files)) as connection:
        (row,) = [row for row in connection.status()["processes"] if row["role"] == "gateway"]
        assert (row["port"], row["tls_port"]) == (None, port)


def test_events_tell_the_encryption_and_the_clients_certificate(alone: tuple[Broker, int], files: Files) -> None:
    _, port = alone
    with shardmq.connect(whole(port, files)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        channel.queue_bind(queue, "amq.rabbitmq.event", "connection.created")
        channel.queue_bind(queue, "amq.rabbitmq.event", "user.authentication.success")
        with shardmq.connect(f"{whole(port, files)}&auth_mechanism=external"):
            deliveries = channel.consume(queue, auto_ack=True)
            login, created = [next(deliveries).properties for _ in range(2)]
            listed = connection.stats_list("connections")["items"]
    assert login is not None
    assert created is not None
    logged_in, told = login.headers or {}, created.headers or {}
    assert logged_in["name"] == "neil"
    assert logged_in["peer_cert_subject"] == told["peer_cert_subject"]
    assert (told["user"], told["auth_mechanism"], told["ssl"], told["port"]) == ("neil", "EXTERNAL", True, port)
    assert (told["ssl_protocol"], told["ssl_cipher"]) == ("tlsv1.3", "aes_256_gcm")
    assert (told["ssl_key_exchange"], told["ssl_hash"]) == ("any", "aead")
    assert told["peer_cert_subject"].startswith("CN=neil,OU=Testing cert")
    assert told["peer_cert_issuer"].startswith("OU=Testing CA")
    (row,) = [row for row in listed if row["user"] == "neil"]
    agreed = ("auth_mechanism", "port", "frame_max", "timeout", "ssl_protocol", "ssl_cipher", "peer_cert_subject")
    assert {name: row[name] for name in agreed} == {name: told[name] for name in agreed}
    began, ends = told["peer_cert_validity"].split(" - ")
    assert began[10] == "T"
    assert began < ends


def test_the_welcome_says_what_clients_need(capsys: pytest.CaptureFixture[str]) -> None:
    at = Notice(
        "up",
        "",
        url="shardmqs://guest:guest@127.0.0.1:5671/",
        tls_host="0.0.0.0",
        tls_port=5671,
        tls_verify=True,
        seconds=1.0,
        data_dir="d",
        processes={"gateway-0": 1},
    )
    print_welcome(at)
    said = capsys.readouterr().out
    for words in (
        "export SHARDMQ_URL=shardmqs://guest:guest@127.0.0.1:5671/",
        "export SHARDMQ_TLS_CA=",
        "export SHARDMQ_TLS_CERT=",
        "0.0.0.0 port 5671, the only port for clients",
    ):
        assert words in said


def test_commands_show_certificates_by_option_url_and_environment(
    alone: tuple[Broker, int], files: Files, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = alone
    options = ["--tls-ca", files.ca, "--tls-cert", files.client, "--tls-key", files.client_key]
    assert run(["queue", "declare", "by-options", "--url", url(port), *options]) == 0
    assert run(["queue", "declare", "by-url", "--url", whole(port, files)]) == 0
    assert run(["queue", "list", "--url", url(port), "--json"]) == 1
    for name, path in zip(VARIABLES, (files.ca, files.client, files.client_key), strict=True):
        monkeypatch.setenv(name, path)
    monkeypatch.setenv("SHARDMQ_URL", url(port))
    capsysbinary.readouterr()
    assert run(["status", "--interval", "0.1", "--json"]) == 0
    state = json.loads(capsysbinary.readouterr().out)
    assert {row["name"] for row in state["queues"]} == {"by-options", "by-url"}
    # an option counts more than the environment
    assert run(["queue", "list", "--tls-cert", files.server, "--tls-key", files.client_key]) == 1
    assert "client.key is not that of the certificate" in capsysbinary.readouterr().err.decode()


def test_both_fronts_take_files_of_the_url_and_of_the_environment(
    alone: tuple[Broker, int], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = alone

    async def in_asyncio(at: str) -> bool:
        async with await shardmq.aio.connect(at) as connection:
            return connection.is_open

    one_file = url(port, f"cafile={files.ca}&certfile={files.both}&verify=verify_peer")
    unverified = url(port, f"verify=verify_none&certfile={files.both}")
    for at in (whole(port, files), one_file, unverified):
        with shardmq.connect(at) as connection:
            assert connection.is_open
        assert asyncio.run(in_asyncio(at))
    with pytest.raises(errors.ConnectionLost, match=r"not to be trusted.*SHARDMQ_TLS_CA"):
        shardmq.connect(url(port, f"certfile={files.both}"))
    named = url(port, f"cacertfile={files.ca}&certfile={files.both}&server_name_indication=another.example")
    with pytest.raises(errors.ConnectionLost, match="not to be trusted"):
        shardmq.connect(named)
    for name, path in zip(VARIABLES, (files.ca, files.client, files.client_key), strict=True):
        monkeypatch.setenv(name, path)
    with shardmq.connect(url(port)) as connection:
        assert connection.is_open
    assert asyncio.run(in_asyncio(url(port)))


def test_clients_log_in_by_certificate(alone: tuple[Broker, int], files: Files) -> None:
    _, port = alone
    with shardmq.connect(f"{whole(port, files)}&auth_mechanism=external") as connection:
        assert [row["user"] for row in connection.topology("connections")] == ["neil"]
        connection.channel().queue_declare("neils", exclusive=True)


def test_who_shows_no_certificate_cannot_log_in_by_one(files: Files, start_broker: Callable[..., Broker]) -> None:
    with hold_port("127.0.0.1", 0) as port:
        broker = start_broker(shards=1, options=["--tls-port", str(port), *files.options, "--tls-ca", files.ca])
        for at in (url(port, f"cacertfile={files.ca}&auth_mechanism=external"), broker.url.replace("guest:guest", ":")):
            with pytest.raises(errors.AuthenticationFailed, match="no certificate that was verified"):
                shardmq.connect(at)
        with shardmq.connect(url(port, f"cacertfile={files.ca}")) as connection:
            assert connection.is_open


def test_tls_may_have_an_address_of_its_own(files: Files, start_broker: Callable[..., Broker]) -> None:
    own = [
        each.address
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family is socket.AF_INET and not each.address.startswith("127.")
    ]
    with hold_port("0.0.0.0", 0) as port:
        broker = start_broker(
            shards=1, options=["--tls-port", str(port), "--tls-host", "0.0.0.0", *files.options, "--gateways", "2"]
        )
        (up,) = [notice for notice in broker.notices if notice.event == "up"]
        assert (up.url, up.tls_host) == (broker.url, "0.0.0.0")
        with shardmq.connect(url(port, f"cacertfile={files.ca}")) as connection:
            assert connection.is_open
        for address in own[:1]:
            assert is_open(port, address)
            assert not is_open(broker.port, address)


WRONG: list[tuple[str, str]] = [
    ("cacertfile=/nowhere/ca.pem", r"/nowhere/ca.pem \(cacertfile of the URL\) cannot be read: No such file"),
    ("certfile=/nowhere/me.pem", r"/nowhere/me.pem \(certfile of the URL\) cannot be read: No such file"),
    ("certfile={client}&keyfile=/nowhere/me.key", r"/nowhere/me.key \(the key for .*client.pem\) cannot be read"),
    ("cacertfile={client_key}", r"no certificates in PEM in .*client.key \(cacertfile of the URL\)"),
    ("certfile={client_key}", r"no certificate in PEM in .*client.key \(certfile of the URL\)"),
    ("certfile={client}", r"client.pem has no private key in PEM"),
    ("certfile={client}&keyfile={server_key}", r"the key .*server.key is not that of the certificate .*client.pem"),
    ("certfile={client}&keyfile={encrypted}", r"encrypted.key has no private key .* without a password .*is encrypted"),
    ("keyfile={client_key}", "a keyfile and no certfile"),
    ("verify=perhaps", "verify=perhaps means nothing"),
    ("auth_mechanism=kerberos", "auth_mechanism=kerberos means nothing"),
    ("cacert=x", "'cacert' means nothing in a URL.*cacertfile"),
    ("certfile=", "an empty 'certfile'"),
    ("cafile=a&cacertfile=b", "more than one 'cacertfile'"),
]


@pytest.mark.parametrize(("query", "words"), WRONG)
def test_errors_say_which_file_is_wrong(files: Files, tmp_path: Path, query: str, words: str) -> None:
    key = serialization.load_pem_private_key(Path(files.client_key).read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    at = "shardmqs://127.0.0.1:1/?" + query.format(encrypted=encrypted, **vars(files))
    with pytest.raises(errors.InvalidRequest, match=words):
        shardmq.connect(at)
    with pytest.raises(errors.InvalidRequest, match=words):
        asyncio.run(shardmq.aio.connect(at))


def test_variables_are_named_where_they_are_wrong(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDMQ_TLS_KEY", files.client_key)
    with pytest.raises(errors.InvalidRequest, match="SHARDMQ_TLS_CERT is not"):
        shardmq.connect(url(1))
    monkeypatch.setenv("SHARDMQ_TLS_CERT", "/nowhere/me.pem")
    with pytest.raises(errors.InvalidRequest, match=r"me.pem \(SHARDMQ_TLS_CERT\) cannot be read"):
        shardmq.connect(url(1))
    monkeypatch.setenv("SHARDMQ_TLS_CA", "/nowhere/ca.pem")
    with pytest.raises(errors.InvalidRequest, match=r"ca.pem \(SHARDMQ_TLS_CA\) cannot be read"):
        shardmq.connect(url(1))
    with pytest.raises(errors.ConnectionLost):  # without TLS none of them matters
        shardmq.connect("shardmq://127.0.0.1:1/", timeout=5)


def test_a_certificate_without_tls_is_a_mistake(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["queue", "list", "--tls-cert", files.client]) == 2
    assert "shardmqs://" in capsys.readouterr().err
    assert run(["queue", "list", "--url", f"shardmq://localhost/?certfile={files.client}"]) == 2
    assert "is for TLS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--no-plain"], "--no-plain leaves no port"), (["--tls-host", "0.0.0.0"], "mean nothing without --tls-port")],
)
def test_options_that_mean_nothing_are_refused(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--data-dir", str(tmp_path / "d"), *options]) == 2
    assert words in capsys.readouterr().err


def test_files_of_clients_in_the_environment_are_no_mistake_of_a_broker_without_tls(
    files: Files, tmp_path: Path
) -> None:
    variables = dict(zip(VARIABLES, (files.ca, files.client, files.client_key), strict=True))
    for name, path in variables.items():
        os.environ[name] = path
    try:
        with Broker(tmp_path / "data", shards=1) as broker, shardmq.connect(broker.url) as connection:
            assert connection.is_open
    finally:
        for name in variables:
            del os.environ[name]


def test_a_tls_port_that_is_taken_is_named_by_its_own_options(files: Files, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            command("up", "--data-dir", str(tmp_path / "d"), "--no-plain", "--tls-port", port, *files.options),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 78
    assert "choose another --tls-host or --tls-port" in ended.stderr
