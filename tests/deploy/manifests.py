"""The settings of a container, as deploy/compose.yaml and deploy/kubernetes give them."""

import re
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = DEPLOY / "kubernetes"


def compose_service() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["broker"]
    return service


def kubernetes_objects() -> list[dict[str, Any]]:
    """All that `kubectl apply --kustomize` applies."""
    names = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    return [each for name in names for each in yaml.safe_load_all((KUBERNETES / name).read_text())]


def pod() -> dict[str, Any]:
    [found] = [each for each in kubernetes_objects() if each["kind"] == "StatefulSet"]
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def image_settings() -> dict[str, str]:
    """What the image sets."""
    return dict(re.findall(r"\b(SHARDMQ_\w+)=(\S+)", CONTAINERFILE.read_text()))


def compose_settings() -> dict[str, str]:
    return {**image_settings(), **compose_service()["environment"]}


def kubernetes_settings() -> dict[str, str]:
    [container] = pod()["containers"]
    return {**image_settings(), **{each["name"]: each["value"] for each in container["env"]}}
