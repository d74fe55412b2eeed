"""Amounts, watermarks and TLS on the command line."""

import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

from shardmq.client.api.url import parse_all
from shardmq.cmd.main import cli, run
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from shardmq.cmd.terminal.options import URL, MemoryAmount, MessageSize, named_limits, named_values
from shardmq.cmd.terminal.process_options import tls_of, tls_words
from shardmq.cmd.terminal.values import read_bytes
from shardmq.runtime.memory import machine_bytes, memory_default
from shardmq.runtime.tls import TlsOptions

CONTEXT = click.Context(cli)
OPTION = click.Option(["--any"])


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("1000", 1000), ("512MiB", 512 << 20), ("1.5GB", 1_500_000_000), ("2 kb", 2000), ("1TiB", 1 << 40)],
)
def test_bytes_have_units(text: str, amount: int) -> None:
    assert read_bytes(text) == amount


@pytest.mark.parametrize("text", ["", "much", "1.2.3GB", "-5", "5 bananas", "MB", "9999999999GB", "9" * 400])
def test_what_is_no_number_of_bytes_is_explained(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write it as"):
        read_bytes(text)


def test_memory_is_a_share_of_the_machine_or_bytes() -> None:
    amount = MemoryAmount()
    assert amount.convert("0.5", None, None) == machine_bytes() // 2
    assert amount.convert("1", None, None) == machine_bytes()
    assert amount.convert("2GiB", None, None) == 2 << 30
    for wrong in ("0", "-1", "half"):
        with pytest.raises(click.BadParameter):
            amount.convert(wrong, None, None)


def test_the_largest_message_has_from_a_byte_to_512_mib() -> None:
    assert [MessageSize().convert(text, None, None) for text in ("1", "16MiB", "128mib", "512MiB")] == [
        1,
        16 << 20,
        128 << 20,
        512 << 20,
    ]
    for wrong in ("0", "513MiB", "1TiB", "many"):
        with pytest.raises(click.BadParameter, match="MiB"):
            MessageSize().convert(wrong, None, None)


@pytest.mark.parametrize("name", ["up", "gateway"])
def test_the_largest_message_is_an_option_and_a_variable_of_what_has_gateways(name: str) -> None:
    (option,) = [each for each in cli.get_command(CONTEXT, name).params if each.name == "message_size_max"]
    assert option.envvar == "SHARDMQ_MESSAGE_SIZE_MAX"
    assert option.get_default(CONTEXT) == "16MiB"


def test_values_are_json_where_they_are_valid_json() -> None:
    given = ("a=1", "b=true", "c=text", 'd="1"', "e=[1,2]", "f=", "g=x=y", "h=null")
    assert named_values(CONTEXT, OPTION, given) == {
        "a": 1,
        "b": True,
        "c": "text",
        "d": "1",
        "e": [1, 2],
        "f": "",
        "g": "x=y",
        "h": None,
    }
    assert named_limits(CONTEXT, OPTION, ("a=1", "b=none")) == {"a": 1, "b": None}
    for wrong in ("a", "=1"):
        with pytest.raises(click.BadParameter, match="NAME=VALUE"):
            named_values(CONTEXT, OPTION, (wrong,))
    for wrong in ("a=99999999999999999999", 'a={"b": [-99999999999999999999]}'):
        with pytest.raises(click.BadParameter, match="more than 64 bits"):
            named_values(CONTEXT, OPTION, (wrong,))


def test_a_virtual_host_is_named_beside_the_url() -> None:
    seen = []

    @click.command()
    @URL
    def look(*, url: str) -> None:
        seen.append([(each.host, each.vhost, each.files.authorities) for each in parse_all(url)])

    plain = "shardmqs://guest:guest@a,b/one?cacertfile=ca.pem"
    look(["--url", plain], standalone_mode=False)
    look(["--url", plain, "--vhost", "eu/ west?"], standalone_mode=False)
    look(["--vhost", "/", "--url", plain], standalone_mode=False)
    assert seen == [[(host, name, "ca.pem") for host in ("a", "b")] for name in ("one", "eu/ west?", "/")]
    with pytest.raises(click.BadParameter, match="has a name"):
        look(["--vhost", ""], standalone_mode=False)


def test_tls_needs_all_its_parts(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    assert tls_of({}) is None
    whole = tls_of({"tls_port": 5671, "tls_cert": pem, "tls_key": pem, "tls_ca": pem, "tls_verify": True})
    assert whole == TlsOptions(5671, pem, pem, pem, True)
    assert tls_words(whole) == (
        *("--tls-port", "5671", "--tls-cert", str(pem), "--tls-key", str(pem)),
        *("--tls-ca", str(pem), "--tls-verify"),
    )
    parts: list[dict[str, Any]] = [
        {"tls_port": 5671, "tls_key": pem},
        {"tls_port": 5671, "tls_cert": pem, "tls_key": pem, "tls_verify": True},
        {"tls_cert": pem, "tls_key": pem},
        {"no_plain": True},
    ]
    for part in parts:
        with pytest.raises(click.UsageError, match="--tls"):
            tls_of(part)


def test_a_missing_certificate_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    assert run(["up", "--tls-port", "5671", "--tls-cert", missing, "--tls-key", missing]) == 2
    assert "none.pem" in capsys.readouterr().err


def option(broker: Broker, process: str, name: str) -> str:
    words = psutil.Process(broker.pids[process]).cmdline()
    return str(words[words.index(name) + 1])


def test_up_shares_the_memory_out_and_hands_the_disk_limit_on(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1, options=["--memory-watermark", "2GB", "--disk-free-limit", "1MB"])
    assert option(broker, "shard-0", "--memory-watermark") == "1000000000B"
    assert option(broker, "gateway-0", "--memory-watermark") == "1000000000B"
    assert option(broker, "shard-0", "--disk-free-limit") == "1000000"
    broker.stop()
    broker.options = ()
    broker.start()
    assert option(broker, "shard-0", "--memory-watermark") == f"{memory_default(2)}B"


def test_up_listens_with_tls_where_it_is_asked_to(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-subj",
        "/CN=localhost",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    try:
        subprocess.run(made, check=True, capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("no openssl here")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = ["--tls-port", str(port), "--tls-cert", str(certificate), "--tls-key", str(key)]
    broker = start_broker(shards=1, options=options)
    assert broker.wait_for("up").tls_port == port
    url = f"shardmqs://guest:guest@localhost:{port}/"
    for authorities, code in ((str(certificate), 0), ("/dev/null", 1)):
        shown = subprocess.run(
            command("queue", "list", "--json", "--url", url),
            env=environment(SSL_CERT_FILE=authorities),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert shown.returncode == code, shown.stderr
