"""Files for several hosts: understood by systemd, compose and etcd, and saying one thing once."""

import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.hosts import HOSTS, UNIT, make_certificates, settings, unit_words
from tests.deploy.manifests import DEPLOY, image_settings

COMPOSE = HOSTS / "compose.yaml"
SECONDS = 60.0


def compose() -> dict[str, Any]:
    file: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return file


def hosts_of_compose() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in compose()["services"].items() if each["env_file"] == "hosts.env"}


def members_of_compose() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in compose()["services"].items() if each["env_file"] == "etcd.env"}


def test_the_unit_of_a_host_is_the_one_of_one_machine_but_for_start_and_stop() -> None:
    lines = (UNIT.read_text(), (DEPLOY / "shardmq.service").read_text())
    host, alone = (re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).splitlines() for text in lines)
    differs = {line[2:].partition("=")[0] for line in difflib.ndiff(host, alone) if line[0] in "+-"}
    assert differs == {
        *("Description", "After", "Conflicts"),
        *("EnvironmentFile", "ExecStop", "TimeoutStartSec", "TimeoutStopSec", "RestrictAddressFamilies"),
    }


def test_before_a_host_is_stopped_it_is_waited_for_and_systemd_gives_it_the_time() -> None:
    words = unit_words("ExecStop")
    assert words[:3] == ["host", "hand-over", "--wait"]
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(seconds) >= int(words[3]) + 30
    for service in hosts_of_compose().values():
        assert service["pre_stop"] == [{"command": ["shardmq", *words]}]


def test_systemd_understands_what_is_added_to_etcds_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze on this machine")
    program = shutil.which("true")
    (tmp_path / "etcd.service").write_text(f"[Service]\nType=notify\nExecStart={program}\n")
    (tmp_path / "etcd.service.d").mkdir()
    shutil.copy(HOSTS / "etcd.conf", tmp_path / "etcd.service.d" / "shardmq.conf")
    words = ("systemd-analyze", "verify", "--man=no", tmp_path / "etcd.service")
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert [line for line in ran.stderr.splitlines() if "etcd" in line] == []
    with (tmp_path / "etcd.service.d" / "shardmq.conf").open("a") as file:
        file.write("Restarts=always\n")
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "shardmq.conf" in ran.stderr, "it looks at the addition"


def test_settings_of_etcd_are_options_of_it() -> None:
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (Debian: etcd-server)")
    told = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False, timeout=SECONDS)
    options = set(re.findall(r"--([a-z-]+)", told.stdout + told.stderr))
    names = {*settings("etcd.env", "etcd-member.env")}
    assert {name.removeprefix("ETCD_").replace("_", "-").lower() for name in names} <= options


def test_the_compose_file_is_what_the_specification_says() -> None:
    words = (sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE))
    ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_hosts_of_the_compose_file_are_those_that_the_settings_wait_for() -> None:
    hosts = hosts_of_compose()
    assert ",".join(hosts) == settings("hosts.env")["SHARDMQ_HOSTS"]
    for name, service in hosts.items():
        own = service["environment"]
        assert own["SHARDMQ_HOST_NAME"] == name
        assert own["SHARDMQ_HOST_ADDRESS"] == service["networks"]["broker"]["ipv4_address"]
        assert not own.keys() & settings("hosts.env").keys()
    assert len({service["environment"]["SHARDMQ_HOST_ADDRESS"] for service in hosts.values()}) == len(hosts)


def test_what_is_mounted_is_where_the_settings_say() -> None:
    common = settings("hosts.env")
    assert common["SHARDMQ_DATA_DIR"] == image_settings()["SHARDMQ_DATA_DIR"]
    authority = common["SHARDMQ_JOIN"].partition("cacertfile=")[2]
    for name, service in hosts_of_compose().items():
        assert service["volumes"] == [
            f"{name}:{common['SHARDMQ_DATA_DIR']}",
            f"./keys/{name}:{common['SHARDMQ_KEYS']}:ro",
            f"./etcd/ca.pem:{authority}:ro",
        ]
    files = {Path(path) for name, path in settings("etcd.env").items() if name.endswith("_FILE")}
    for name, service in members_of_compose().items():
        data_dir = service["environment"]["ETCD_DATA_DIR"]
        [folder] = {path.parent for path in files}
        assert service["volumes"] == [f"{name}:{data_dir}", f"./etcd/members:{folder}:ro"]


def test_members_of_etcd_are_named_everywhere_as_in_its_settings() -> None:
    pairs = (pair.split("=") for pair in settings("etcd.env")["ETCD_INITIAL_CLUSTER"].split(","))
    peers = dict(pairs)
    members = members_of_compose()
    assert [*members] == [*peers]
    assert f"@{','.join(peers)}/" in settings("hosts.env")["SHARDMQ_JOIN"]
    example = settings("etcd-member.env")
    for name, service in members.items():
        of_member = {key: value.replace(example["ETCD_NAME"], name) for key, value in example.items()}
        assert of_member.items() <= service["environment"].items()
        assert of_member["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == peers[name]


def test_certificates_are_made_and_made_again_by_the_same_authority(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl on this machine")
    folder = tmp_path / "etcd"
    make_certificates(folder, ["etcd-1", "10.0.0.11"])
    authority = (folder / "ca.pem").read_bytes()
    make_certificates(folder, ["etcd-1", "etcd-2", "fd00::1"])
    assert (folder / "ca.pem").read_bytes() == authority
    assert {path.name for path in (folder / "members").iterdir()} == {"ca.pem", "member.key", "member.pem"}
    words = ("openssl", "verify", "-x509_strict", "-CAfile", folder / "ca.pem")
    for purpose in ("sslserver", "sslclient"):
        for check in (("-verify_hostname", "etcd-2"), ("-verify_ip", "fd00::1")):
            subprocess.run((*words, "-purpose", purpose, *check, folder / "members" / "member.pem"), check=True)
    for key in (folder / "ca.key", folder / "members" / "member.key"):
        assert key.stat().st_mode & 0o077 == 0


def test_the_readme_says_of_every_file_where_it_goes() -> None:
    table = (HOSTS / "README.md").read_text().partition("\n\n| file")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) == {
        path.name for path in HOSTS.iterdir() if path.name not in ("README.md", "etcd", "keys")
    }
