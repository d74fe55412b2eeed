"""`shardmq bench scaling`: its arithmetic, and what it records."""

import json
from pathlib import Path
from typing import Any

import pytest

from shardmq.cmd.bench.scaling.derived import beside_model, modelled_hosts
from shardmq.cmd.bench.scaling.model import Costs, Hosts, bounds, rate
from shardmq.cmd.main import run

CHEAP = Costs(gateway_us=4.0, shard_us=1.0, follower_us=1.0, leading_us=0.5)


def test_one_machines_rate_is_that_of_its_first_full_part() -> None:
    two_cores = bounds(Costs(4.0, 1.0, client_us=5.0), Hosts(1, 2, 1, 1))
    assert two_cores == {"cores": 200_000.0, "gateways": 250_000.0, "shards": 1_000_000.0}
    assert rate(two_cores) == (200_000.0, "cores")
    assert rate(bounds(CHEAP, Hosts(1, 16, 1, 4))) == (250_000.0, "gateways")


def test_a_follower_takes_of_the_cores_and_not_of_the_gateways() -> None:
    alone, replicated = (bounds(CHEAP, Hosts(3, 4, 2, 6, replicas)) for replicas in (1, 2))
    assert replicated["gateways"] == alone["gateways"]
    assert alone["cores"] == pytest.approx(12e6 / 5.0)
    assert replicated["cores"] == pytest.approx(12e6 / 6.5)
    assert replicated["shards"] == pytest.approx(6e6 / 1.5)


def test_network_and_disk_count_each_copy() -> None:
    hosts = Hosts(2, 8, 2, 8, 2, network_bytes_per_s=1e9, disk_bytes_per_s=5e8)
    found = bounds(CHEAP, hosts, body_bytes=1000, written=2.0)
    assert found["network"] == pytest.approx(2e9 / 3000)  # there and back for every second one, a follower, a consumer
    assert found["disk"] == pytest.approx(1e9 / 4000)


def test_rates_double_with_hosts_until_the_network_does_not() -> None:
    def rates(count: int) -> dict[str, float]:
        return bounds(CHEAP, Hosts(count, 8, 2, 4 * count, 2, 1e9), body_bytes=100)

    assert rates(8)["cores"] == pytest.approx(2 * rates(4)["cores"])
    assert rates(8)["network"] < 2 * rates(4)["network"]


def layout(gateways: int, shards: int, rate: float | None) -> dict[str, Any]:
    costs = {"gateway": 4.0, "shard": 1.0, "coordinator": 0.0, "client": 5.0}
    return {"gateways": gateways, "shards": shards, "rate": rate, "cpu_us": None if rate is None else costs}


def test_measured_rates_stand_beside_the_models() -> None:
    rows = [layout(1, 1, 160_000.0), layout(2, 4, 250_000.0), layout(2, 2, None)]
    first, second, third = beside_model({"machine": {"cores": 2}, "rows": rows})
    assert (first["model"], first["bound"]) == (200_000.0, "cores")
    assert first["error"] == pytest.approx(25.0)
    assert second["error"] == pytest.approx(-20.0)
    assert third["model"] is None


def test_hosts_of_the_model_have_what_copies_were_measured_to_take() -> None:
    alone = {"cpu_us": {"gateway": 4.0, "primary": 1.0, "follower": 0.0}, "written": 4.0}
    two = {"cpu_us": {"gateway": 4.2, "primary": 1.5, "follower": 1.0}, "written": 5.0}
    found = {row["hosts"]: row for row in modelled_hosts({"rows": [alone, two]})}
    assert found[1]["cores"] == pytest.approx(8e6 / 5.0)
    assert found[2]["cores"] == 2_460_000.0
    assert found[10]["gateways"] == 40e6 / 4.0
    assert found[10]["first"] == min(("cores", "gateways", "shards", "network", "disk"), key=found[10].__getitem__)
    assert modelled_hosts({"rows": [{"cpu_us": None}, two]})[0]["cores"] is None


@pytest.mark.parametrize(("part", "rate"), [("queues", "declare_per_s"), ("groups", "begin_per_s")])
def test_what_is_measured_is_recorded_and_leaves_nothing_behind(
    part: str, rate: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    disk, record = tmp_path / "disk", tmp_path / "record"
    disk.mkdir()
    record.mkdir()
    words = ["--part", part, f"--{part}", "0", "--disk", str(disk), "--record", str(record), "--json"]
    assert run(["bench", "scaling", *words]) == 0
    said = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    (row,) = said["scaling"][part]
    assert row[part] == 0
    assert row[rate] > 0
    assert row["resident_bytes"]["coordinator"] > 1 << 20
    kept = json.loads((record / f"scaling-{part}.json").read_text())
    assert kept["rows"][0].items() >= row.items()
    assert [each[rate] for each in kept["rows"][1:]] == [None] * 3
    assert kept["command"].endswith(f"--part {part} --record docs/benchmarks/results")
    assert list(disk.iterdir()) == []


def test_what_is_not_installed_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC")
    assert run(["bench", "scaling", "--part", "etcd", "--part", "messages", "--disk", str(tmp_path), "--json"]) == 0
    said = json.loads(capsysbinary.readouterr().out.splitlines()[-1])
    assert said["scaling"] == {}
    etcd, messages = sorted(said["absent"])
    assert etcd == "etcd: etcd is not installed: apt-get install etcd-server"
    assert messages.startswith("messages: a C compiler is not installed")
