"""Shovels on the page: added by the form, looked at, restarted, deleted."""

import shlex

from selenium.webdriver.common.by import By

import shardmq
from shardmq.cmd.main import run

from .window import Page


def add_and_delete_shovels(page: Page, url: str, connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    """Add one that works, one that is refused and one that cannot work; restart and delete."""
    channel.queue_declare("shovel.in", durable=True)
    channel.basic_publish("", "shovel.in", b"moved")
    page.open("shovels")
    page.sees("There are none.")
    page.click("Add a shovel")
    _fill(page, "mover", "shovel.in", "shovel.out")
    (line,) = page.lines("dialog[open]")
    assert line == "shardmq shovel add --queue shovel.in --to-queue shovel.out --vhost / mover"
    _narrow(page)
    page.fill("source", "q" * 300, "dialog[open]")
    page.click("Add", "dialog[@open]")
    page.until(lambda driver: "bytes; choose a shorter name" in driver.find_element(By.CSS_SELECTOR, ".toasts").text)
    page.fill("source", "shovel.in", "dialog[open]")
    page.click("Add", "dialog[@open]")
    page.sees("Added the shovel.")
    page.until(lambda _: _state(connection, "mover").get("moved") == 1)
    _lost(page, connection)
    page.open("shovels/%2F/mover")
    page.sees("running")
    page.sees("queue shovel.out")
    page.click("Restart")
    page.sees("Restarted mover.")
    _delete(page, "mover")
    assert run([*shlex.split(line)[1:], "--url", url]) == 0
    connection.parameter_delete("/", "shovel", "mover")
    page.until(lambda _: channel.queue_declare("shovel.out", passive=True).messages == 1)


def _lost(page: Page, connection: shardmq.Connection) -> None:
    """One to a broker that is not there: the page says why, and nowhere its password."""
    page.open("shovels")
    page.click("Add a shovel")
    _fill(page, "lost", "shovel.in", "far")
    page.find("dialog[open] [name='dest-broker'] option:last-child").click()
    page.fill("dest-uri", "amqp://127.0.0.1:1/", "dialog[open]")
    page.fill("dest-user", "anna", "dialog[open]")
    page.fill("dest-password", "hunter22", "dialog[open]")
    assert "--to amqp://anna:PASSWORD@127.0.0.1:1/ --to-queue far" in page.lines("dialog[open]")[0]
    page.click("Add", "dialog[@open]")
    page.until(lambda _: _state(connection, "lost").get("error"))
    value = next(row["value"] for row in connection.topology("parameters") if row["name"] == "lost")
    assert value["dest-uri"] == "amqp://anna:hunter22@127.0.0.1:1/"
    page.click("lost")
    page.sees("cannot connect to 127.0.0.1:1")
    page.sees("amqp://127.0.0.1:1/")
    assert page.violations() == []
    for secret in ("hunter22", "anna"):
        assert secret not in page.driver.page_source
    page.open("shovels?name=lost")
    page.sees("1 of 1 that match, of 2")
    page.sees("cannot connect to 127.0.0.1:1")
    assert page.violations() == []
    page.open("shovels/%2F/lost")
    _delete(page, "lost")


def _fill(page: Page, name: str, source: str, destination: str) -> None:
    for field, value in (("name", name), ("source", source), ("destination", destination)):
        page.fill(field, value, "dialog[open]")


def _delete(page: Page, name: str) -> None:
    page.click("Delete")
    page.find("dialog[open] input").send_keys(name)
    page.click("Delete", "dialog[@open]")
    page.sees(f"Deleted {name}.")
    page.until(lambda driver: driver.current_url.endswith("#/shovels"))


def _narrow(page: Page) -> None:
    """The form is for everybody, and fits a telephone."""
    assert page.violations() == []
    with page.as_wide_as(390):
        page.find("dialog[open]")
        page.fits()


def _state(connection: shardmq.Connection, name: str) -> dict[str, object]:
    return next((row for row in connection.topology("shovels") if row["name"] == name), {})
