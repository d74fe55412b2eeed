"""A broker on several hosts as its management process shows it: the API, metrics, the page."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.management.browser import Browser
from tests.management.metrics.evaluating import Scrape, Scrapes, evaluated, panels, scrape_at
from tests.management.window import Page, chromium, start_chromium
from tests.ports import free_ports
from tests.running import without
from tests.warm import SHARDMQ, warm_process

from .moving import is_listening, until
from .replicated import ReplicatedBroker


class Watched:
    """A broker as its management process shows it, asked by way of one host's gateway."""

    def __init__(self, broker: ReplicatedBroker, host: str) -> None:
        self.url = broker.url_of(host)
        port, self._metrics_port = free_ports(2)
        options = "--management-port", str(port), "--metrics-port", str(self._metrics_port)
        self._process = warm_process.run(SHARDMQ, "management", "--url", self.url, *options)
        until(lambda: is_listening(port) and is_listening(self._metrics_port))
        self.page_url = f"http://127.0.0.1:{port}/"
        self.browser = Browser(self.page_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.browser.__exit__(None, None, None)
        self._process.terminate()
        self._process.wait()

    def findings(self) -> dict[tuple[str, str], str]:
        """Titles, by rule and name."""
        return {(row["rule"], row["name"]): row["title"] for row in self.browser.get("/shardmq/findings?after=0")}

    def hosts(self) -> dict[str, str]:
        """States of hosts."""
        return {row["host"]: row["state"] for row in self.browser.get("/shardmq/hosts")["hosts"]}

    def group(self, name: str) -> dict[str, Any]:
        """A group's row, its followers by host."""
        [row] = [row for row in self.browser.get("/shardmq/hosts")["groups"] if row["group"] == name]
        return {**row, "followers": {each["host"]: each for each in row["followers"]}}

    def metrics(self) -> dict[tuple[str, str, str], float]:
        """Of hosts and replicas, by name, process and host."""
        return {
            (sample.name.removeprefix("shardmq_"), sample.labels.get("process", ""), sample.labels.get("host", "")): (
                sample.value
            )
            for sample in self._scrape().samples
            if sample.name.startswith(("shardmq_replica", "shardmq_host"))
        }

    def dashboard(self) -> dict[str, float]:
        """What the dashboard of hosts shows, the first value of each panel by its title; each shows something."""
        told = self._scrape()
        shown = {
            panel: [evaluated(each, Scrapes(told, told)) for each in of]
            for panel, of in panels("shardmq-hosts.json").items()
        }
        return {panel: series[0][0][1] for panel, series in shown.items()}

    def _scrape(self) -> Scrape:
        return scrape_at(f"http://127.0.0.1:{self._metrics_port}/metrics")


@contextlib.contextmanager
def look_at_page(watched: Watched, profile: Path) -> Iterator[Page]:
    """Processes on the page, in a real browser."""
    if chromium() is None:
        without(Absent("there is no Chromium"))
    driver = start_chromium(profile / "profile")
    try:
        page = Page(driver, watched.page_url)
        page.log_in("guest", "guest")
        page.open("processes")
        yield page
    finally:
        driver.quit()
