"""The chart and the manifests that it makes: what Helm and Kubernetes take, and the settings of deploy/hosts."""

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest

from shardmq.cmd.main import cli
from shardmq.cmd.run import invocation
from shardmq.replication.etcd.url import parse
from tests.deploy.charts import CHART, HEAD, MANIFESTS, RELEASE, WITHOUT, has_helm, objects, one, rendered
from tests.deploy.hosts import settings, unit_words
from tests.deploy.manifests import CONTAINERFILE, image_settings
from tests.deploy.test_units import known

PODS = ["shardmq-0", "shardmq-1", "shardmq-2"]
WITH_TLS = {"secrets": {"tls": "certificate", "definitions": ""}, "plain": False}
ELSEWHERE = {"etcd": {"enabled": False, "endpoints": ["e1.example:2379", "e2.example"]}, "networkPolicy": False}
needs_helm = pytest.mark.skipif(not has_helm, reason=WITHOUT)


def manifests() -> list[dict[str, Any]]:
    return objects(MANIFESTS.read_text())


def pod_of(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    spec: dict[str, Any] = one(found, "StatefulSet", name)["spec"]["template"]["spec"]
    return spec


def variables(container: dict[str, Any], **fields: str) -> dict[str, str]:
    """The environment of a container, as Kubernetes makes it.

    Args:
        container: of a pod.
        fields: of the pod and of secrets, by the name of the variable.
    """
    found: dict[str, str] = {}
    for each in container["env"]:
        text = each.get("value", fields.get(each["name"], ""))
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], text)
    return found


@needs_helm
def test_the_manifests_are_what_the_chart_makes() -> None:
    assert MANIFESTS.read_text() == HEAD + rendered(), "run `make manifests`"


@needs_helm
def test_helms_linter_finds_nothing() -> None:
    import helm_python

    found = helm_python.lint(str(CHART))
    assert found["errors"] == []
    assert [message["error"] for message in found["messages"]] in ([], ["icon is recommended"])


@pytest.mark.parametrize("version", ["1.29.0", kubernetes_validate.latest_version()])
def test_kubernetes_takes_every_object(version: str) -> None:
    for each in manifests():
        kubernetes_validate.validate(each, version, strict=True)


@needs_helm
@pytest.mark.parametrize("values", [WITH_TLS, ELSEWHERE, {"hosts": 5, "storage": {"className": "fast"}}])
def test_kubernetes_takes_what_other_values_make(values: dict[str, Any]) -> None:
    for each in objects(rendered(values, "orders")):
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
        assert each["metadata"]["name"].startswith("orders")


@needs_helm
@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"hosts": 1}, "hosts"),
        ({"replicas": 2}, "replicas"),
        ({"settings": {"SHARDMQ_REPLICAS": 3}}, "SHARDMQ_REPLICAS"),
        ({"plain": False}, "secrets.tls names the certificate"),
    ],
)
def test_values_that_mean_nothing_are_refused(values: dict[str, Any], why: str) -> None:
    import helm_python

    with pytest.raises(helm_python.HelmError, match=re.escape(why)):
        rendered(values)


def test_settings_are_those_of_all_hosts_and_known_to_the_command() -> None:
    [container] = pod_of(manifests(), RELEASE)["containers"]
    own = variables(container)
    common = settings("hosts.env")
    assert {name: value for name, value in common.items() if own[name] != value}.keys() == {
        "SHARDMQ_JOIN",
        "SHARDMQ_HOSTS",
    }
    with click.Context(cli) as context:
        command = cli.get_command(context, "up")
    assert command is not None
    assert {*own} - {"ETCD_PASSWORD"} <= known(command)
    assert own["SHARDMQ_DATA_DIR"] == image_settings()["SHARDMQ_DATA_DIR"]


@needs_helm
def test_settings_of_the_values_go_before_those_of_all_hosts() -> None:
    found = objects(rendered({"settings": {"SHARDMQ_UP_SHARDS": "8", "SHARDMQ_LOG_LEVEL": "warning"}}))
    [container] = pod_of(found, RELEASE)["containers"]
    own = variables(container)
    assert (own["SHARDMQ_UP_SHARDS"], own["SHARDMQ_LOG_LEVEL"], own["SHARDMQ_REPLICAS"]) == ("8", "warning", "2")
    policy = one(found, "NetworkPolicy", RELEASE)
    assert policy["spec"]["ingress"][1]["ports"] == [{"port": 5680, "endPort": 5680 + 2 * (8 + 1) - 1}]


def test_a_pod_is_a_host_that_finds_etcd_and_the_others() -> None:
    found = manifests()
    [container] = pod_of(found, RELEASE)["containers"]
    own = variables(container, ETCD_PASSWORD="se%3Acret", SHARDMQ_HOST_NAME="shardmq-1")
    assert own["SHARDMQ_HOSTS"].split(",") == PODS
    url = parse(own["SHARDMQ_JOIN"])
    assert (url.is_tls, url.user, url.password, url.prefix) == (True, "shardmq", "se:cret", "orders")
    etcd = one(found, "StatefulSet", f"{RELEASE}-etcd")
    names = [f"{RELEASE}-etcd-{number}.{etcd['spec']['serviceName']}" for number in range(etcd["spec"]["replicas"])]
    assert [endpoint.host for endpoint in url.endpoints] == names
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {own["SHARDMQ_DATA_DIR"], own["SHARDMQ_KEYS"], str(Path(url.authorities or "").parent)} <= mounts.keys()
    fields = {each["name"]: each["valueFrom"] for each in container["env"] if "valueFrom" in each}
    assert fields["SHARDMQ_HOST_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert fields["SHARDMQ_HOST_ADDRESS"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_members_of_etcd_find_one_another() -> None:
    [container] = pod_of(manifests(), f"{RELEASE}-etcd")["containers"]
    own = variables(container, ETCD_NAME="shardmq-etcd-2")
    peers = dict(pair.split("=") for pair in own["ETCD_INITIAL_CLUSTER"].split(","))
    assert peers["shardmq-etcd-2"] == own["ETCD_INITIAL_ADVERTISE_PEER_URLS"]
    assert own["ETCD_ADVERTISE_CLIENT_URLS"] == "https://shardmq-etcd-2.shardmq-etcd:2379"
    common = settings("etcd.env")
    assert {name for name in common if own[name] != common[name]} == {
        "ETCD_INITIAL_CLUSTER",
        "ETCD_INITIAL_CLUSTER_TOKEN",
    }


def test_pods_are_apart_start_together_and_stop_one_by_one() -> None:
    found = manifests()
    for name, least in ((RELEASE, {"maxUnavailable": 1}), (f"{RELEASE}-etcd", {"minAvailable": 2})):
        spec = one(found, "StatefulSet", name)["spec"]
        assert spec["podManagementPolicy"] == "Parallel"
        labels = spec["selector"]["matchLabels"]
        [rule] = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert rule == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
        budget = one(found, "PodDisruptionBudget", name)["spec"]
        assert budget == {"selector": {"matchLabels": labels}, **least}


def test_a_pod_is_waited_for_before_it_stops_and_has_the_time() -> None:
    spec = pod_of(manifests(), RELEASE)
    [container] = spec["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command[:-1] == ["shardmq", *unit_words("ExecStop")[:-1]]
    assert spec["terminationGracePeriodSeconds"] >= int(command[-1]) + 30
    assert container["readinessProbe"]["tcpSocket"] == container["startupProbe"]["tcpSocket"] == {"port": "clients"}
    assert "livenessProbe" not in container


def test_services_and_policies_reach_ports_of_their_pods() -> None:
    found = manifests()
    sets = [each for each in found if each["kind"] == "StatefulSet"]
    for each in found:
        selector = each["spec"].get("podSelector", {}).get("matchLabels") or each["spec"].get("selector")
        if each["kind"] not in ("Service", "NetworkPolicy"):
            continue
        [pods] = [pod for pod in sets if pod["spec"]["selector"]["matchLabels"] == selector]
        [container] = pods["spec"]["template"]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]} | {5680}
        named = [port.get("targetPort") for port in each["spec"].get("ports", [])]
        named += [port["port"] for rule in each["spec"].get("ingress", []) for port in rule["ports"]]
        assert {*named} <= ports
    assert {each["spec"]["serviceName"] for each in sets} <= {
        each["metadata"]["name"] for each in found if each["kind"] == "Service"
    }


def test_keys_of_the_secret_come_to_the_pod_that_they_are_of(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    subprocess.run(
        invocation.command("keys", "hosts", *PODS, "--shards", "4", "--gateways", "1", "--dir", str(keys)),
        check=True,
        capture_output=True,
    )
    secret, own = tmp_path / "secret", tmp_path / "own"
    secret.mkdir()
    own.mkdir()
    for folder in [*(keys / pod for pod in PODS), keys / PODS[0] / "allowed"]:  # `kubectl create secret --from-file`
        for path in folder.iterdir():
            if path.is_file():
                (secret / path.name).write_bytes(path.read_bytes())
                (secret / path.name).chmod(0o440)  # as fsGroup makes them
    [container] = pod_of(manifests(), RELEASE)["initContainers"]
    values = variables(container, SHARDMQ_HOST_NAME="shardmq-1") | {"SHARDMQ_KEYS": str(own)}
    shell, flags, script = container["command"]
    subprocess.run(
        [shell, flags, script.replace("/run/keys", str(secret))], env={**os.environ, **values}, check=True, timeout=30
    )
    assert {path.name for path in own.iterdir()} == {"allowed", *os.listdir(keys / "shardmq-1")}
    assert {*os.listdir(own / "allowed")} == {*os.listdir(keys / "shardmq-1" / "allowed")}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in own.glob("*.key_secret"))


def test_pods_run_as_the_user_of_the_image() -> None:
    [uid] = re.findall(r"^USER (\d+):\1$", CONTAINERFILE.read_text(), re.MULTILINE)
    context = pod_of(manifests(), RELEASE)["securityContext"]
    assert context["runAsUser"] == context["fsGroup"] == int(uid)
