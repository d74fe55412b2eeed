"""The management process: supervised, alone, its port, and that a broker does not need it."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import requests
import trustme

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment
from tests.management.browser import Browser, Refused

OUT_OF_THE_BOX: Final = """
import fcntl, signal, socket, struct, subprocess, sys, time, urllib.request

with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
broker = subprocess.Popen(sys.argv[1:], stdout=sys.stderr)
end = time.monotonic() + 40
while True:
    try:
        with urllib.request.urlopen("http://127.0.0.1:15672/readyz", timeout=5) as answer:
            print(answer.status)
        break
    except OSError:
        if time.monotonic() > end:
            raise
        time.sleep(0.05)
with socket.socket() as another:
    print(another.connect_ex(("127.0.0.2", 15672)) != 0)
broker.send_signal(signal.SIGTERM)
print(broker.wait(30))
"""
"""Starts a broker in a network of its own, where nobody else has its ports, and asks its management."""


def test_a_broker_out_of_the_box_has_it_at_port_15672_of_this_machine_alone(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs a network of its own, which only Linux gives, and not to everybody")
    up = command("up", "--data-dir", str(tmp_path / "data"))
    words = [unshare, "-rn", sys.executable, "-c", OUT_OF_THE_BOX, *up]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.split()[-3:] == ["200", "True", "0"], done


def test_a_process_that_ends_is_started_again_and_the_broker_goes_on(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        channel.queue_declare("goes-on")
        managed.kill_and_wait("management")
        channel.basic_publish("", "goes-on", b"x")
        assert channel.queue_declare("goes-on", passive=True).messages == 1
    with Browser(managed.management_url) as browser:
        assert browser.get("/queues/%2F/goes-on")["messages"] == 1


@contextlib.contextmanager
def management(url: str, *options: str) -> Iterator[str]:
    """A management process by itself; its URL, and behind a blank that of its metrics."""
    with running(url, *options) as (urls, _):
        yield urls


@contextlib.contextmanager
def running(url: str, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The same, with the process."""
    words = ("management", "--url", url, "--management-port", "0", *options)
    with subprocess.Popen(command(*words), env=environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            lines = 2 if "--metrics-port" in options else 1
            yield " ".join([process.stderr.readline().split()[-1] for _ in range(lines)]), process
        finally:
            process.terminate()
            assert process.wait(20) == 0


def test_it_is_a_process_of_its_own_for_a_broker_anywhere(managed: Broker) -> None:
    with management(managed.url) as url, Browser(url) as browser:
        assert browser.get("/whoami")["name"] == "guest"


def test_metrics_may_have_a_port_of_their_own_without_a_login_and_nothing_else_is_there(managed: Broker) -> None:
    with management(managed.url, "--metrics-port", "0") as urls, requests.Session() as session:
        session.trust_env = False
        url, metrics = urls.split()
        assert "rabbitmq_identity_info" in session.get(metrics, timeout=10).text
        assert session.get(metrics, auth=("guest", "guest"), timeout=10).status_code == 200
        assert session.get(metrics, auth=("guest", "wrong"), timeout=10).status_code == 401
        room = metrics.removesuffix("/metrics")
        assert session.get(f"{room}/readyz", timeout=10).json() == {"status": "ok"}
        for path in ("/", "/api/overview", "/api/login", "/api/openapi.json"):
            assert session.get(room + path, timeout=10).status_code == 404
        assert session.get(f"{url}metrics", timeout=10).status_code == 401
    with management(managed.url.replace("guest:guest", "guest:changed"), "--metrics-port", "0") as urls:
        assert [requests.get(urls.split()[1], timeout=10).status_code for _ in range(2)] == [401, 401]


def test_with_a_certificate_it_speaks_https_alone_and_its_cookie_stays_there(managed: Broker, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    issue(files)
    options = ("--management-tls-cert", str(files["cert"]), "--management-tls-key", str(files["key"]))
    with running(managed.url, *options) as (url, process), requests.Session() as session:
        session.trust_env = False  # variables name other authorities
        session.verify = str(files["ca"])
        assert url.startswith("https://127.0.0.1:")
        login = {"username": "guest", "password": "guest"}
        answer = session.post(f"{url}api/login", data=login, timeout=10)
        assert "Secure" in answer.headers["Set-Cookie"]
        assert session.get(f"{url}api/whoami", timeout=10).json()["name"] == "guest"
        with pytest.raises(requests.ConnectionError):
            session.get(url.replace("https:", "http:"), timeout=10)
        issue(files)
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        assert "user 'guest'" in process.stderr.readline()
        assert "read certificate" in process.stderr.readline()
        assert session.get(f"{url}api/whoami", timeout=10).status_code == 200  # over the connection that it has
        assert requests.get(f"{url}livez", verify=str(files["ca"]), timeout=10).status_code == 200
        files["key"].write_text("no key")
        process.send_signal(signal.SIGHUP)
        assert "new connections get the certificate that was read before" in process.stderr.readline()
        assert requests.get(f"{url}livez", verify=str(files["ca"]), timeout=10).status_code == 200


def issue(files: dict[str, Path]) -> None:
    """Write a certificate with its key and authority."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(files["ca"])
    issued.private_key_pem.write_to_path(files["key"])
    files["cert"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))


def test_a_broker_that_is_away_is_said_to_be() -> None:
    with management("shardmq://127.0.0.1:9/") as url, Browser(url) as browser:
        with pytest.raises(Refused, match="the broker cannot be reached") as refused:
            browser.get("/whoami")
        assert refused.value.status == 503


def test_a_port_that_was_chosen_and_is_taken_refuses_the_start(managed: Broker, tmp_path: Path) -> None:
    taken = managed.management_url.rpartition(":")[2].rstrip("/")
    words = ("up", "--port", "0", "--management-port", taken, "--data-dir", str(tmp_path / "data"))
    done = subprocess.run(command(*words), env=environment(), capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 78
    assert f"cannot listen on 127.0.0.1 port {taken}" in done.stderr
    assert "choose another --management-host or --management-port" in done.stderr
