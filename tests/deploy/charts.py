"""The Helm chart of deploy/hosts, rendered; `make manifests` writes deploy/hosts/kubernetes.yaml from it."""

import importlib.util
from collections.abc import Mapping
from typing import Any

import yaml

from tests.deploy.hosts import HOSTS

CHART = HOSTS / "chart"
MANIFESTS = HOSTS / "kubernetes.yaml"
RELEASE = "shardmq"
HEAD = """\
# One broker on several hosts, and the etcd that they agree in: README.md, "In Kubernetes". `make manifests` writes this
# file from the chart, with the values that it has by itself.

"""
WITHOUT = "helm-python-sdk has no package for this machine, so the chart is not rendered"

has_helm = importlib.util.find_spec("helm_python") is not None


def rendered(values: Mapping[str, Any] | None = None, release: str = RELEASE) -> str:
    """What `helm template` writes, without the notes.

    Raises:
        helm_python.HelmError: the values are not what the chart takes.
    """
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        files = chart.render(dict(values or {}), name=release, namespace="default")
    texts = [text.strip() for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return "---\n".join(f"{text}\n" for text in texts if text)


def objects(text: str) -> list[dict[str, Any]]:
    """All objects of a file."""
    return [each for each in yaml.safe_load_all(text) if each]


def one(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """The one object of a kind and a name."""
    [only] = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return only


if __name__ == "__main__":
    MANIFESTS.write_text(HEAD + rendered())
    print(f"wrote {MANIFESTS}")
