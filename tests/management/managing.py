"""What operators make, change and delete on the page, seen from a client of the broker."""

import json
from typing import Any

from selenium.webdriver.common.by import By

import shardmq

from .window import Page

FETCHED = """const done = arguments[0], link = document.querySelector('a[download]');
fetch(link.href).then((answer) => answer.text()).then(done)"""
"""What a browser would keep as the file of a link."""


def fill_in(page: Page, button: str, submit: str, inside: str = "", **values: str) -> None:
    """Open a dialog, fill fields in or choose what they offer, and submit."""
    _close_notes(page)
    page.click(button, inside)
    for name, value in values.items():
        field = page.find(f"dialog[open] [name='{name}']")
        if field.tag_name == "select":
            page.until(lambda _, at=field, word=value: word in at.text)
            page.find(f"dialog[open] [name='{name}']").send_keys(value)
        elif field.get_attribute("type") == "checkbox":
            field.click()
        else:
            page.fill(name, value, "dialog[open]")
    page.click(submit, "dialog[@open]")
    page.until(lambda driver: not driver.find_elements(By.CSS_SELECTOR, "dialog[open]"))


def confirm(page: Page, button: str, name: str, inside: str = "") -> None:
    """Do what has to be typed."""
    _close_notes(page)
    page.click(button, inside)
    page.find("dialog[open] form input").send_keys(name)
    page.click(button, "dialog[@open]")
    page.until(lambda driver: not driver.find_elements(By.CSS_SELECTOR, "dialog[open]"))


def _close_notes(page: Page) -> None:
    """What tells of the change before may be over the next button. It goes by itself meanwhile, so all in one step."""
    page.driver.execute_script("document.querySelectorAll('.toasts button').forEach((each) => each.click())")


def rows(connection: shardmq.Connection, noun: str, name: str, column: str = "name") -> list[dict[str, Any]]:
    """The rows of a list that have this name."""
    return [row for row in connection.topology(noun) if row[column] == name]


def manage_people(page: Page, connection: shardmq.Connection) -> None:
    """A virtual host, a user with tags and permissions: made, changed, deleted."""
    page.open("vhosts")
    fill_in(page, "Add a virtual host", "Add", name="paged", description="by hand")
    assert rows(connection, "vhosts", "paged")[0]["description"] == "by hand"
    connection.user_put("pat", "old", tags=["own"])
    page.open("users")
    fill_in(page, "Add a user", "Save", name="paul", password="secret", **{"tag-monitoring": "yes"})
    assert rows(connection, "users", "paul")[0]["tags"] == ["monitoring"]
    fill_in(page, "Edit", "Save", "tr[contains(., 'pat')]", **{"tag-management": "yes"})
    assert sorted(rows(connection, "users", "pat")[0]["tags"]) == ["management", "own"]
    fill_in(page, "Set permissions", "Set", user="paul", vhost="paged", write="^a")
    (permission,) = rows(connection, "permissions", "paul", "user")
    assert (permission["vhost"], permission["configure"], permission["write"]) == ("paged", ".*", "^a")
    confirm(page, "Clear", "paul", "tr[contains(., 'paged') and contains(., '^a')]")
    assert rows(connection, "permissions", "paul", "user") == []
    for name in ("paul", "pat"):
        confirm(page, "Delete", name, f"tr[contains(., '{name}')]")
        assert rows(connection, "users", name) == []
    page.open("vhosts")
    confirm(page, "Delete", "paged", "tr[contains(., 'paged')]")
    assert rows(connection, "vhosts", "paged") == []


def manage_routes(page: Page, connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    """A queue, an exchange, a binding, a message, a topic, definitions: made, used, deleted."""
    page.open("queues")
    fill_in(page, "Declare a queue", "Declare", name="made.q", arguments='{"x-max-length": 7}')
    assert rows(connection, "queues", "made.q")[0]["arguments"] == {"x-max-length": 7}
    page.open("exchanges")
    fill_in(page, "Declare an exchange", "Declare", name="made.x", type="topic")
    page.open("exchanges/%2F/made.x")
    fill_in(page, "Bind", "Bind", "section[contains(., 'Bindings from here')]", name="made.q", key="a.#")
    assert rows(connection, "bindings", "made.x", "source")[0]["routing_key"] == "a.#"
    page.fill("key", "a.b", "main form")
    page.fill("body", "by hand", "main form")
    page.click("Publish")
    page.sees("Published and confirmed.")
    message = channel.basic_get("made.q", auto_ack=True)
    assert message is not None
    assert (bytes(message.body), message.routing_key) == (b"by hand", "a.b")
    page.open("definitions")
    page.find("a[download]")
    taken = json.loads(page.driver.execute_async_script(FETCHED))
    assert "made.x" in [exchange["name"] for exchange in taken["exchanges"]]
    page.open("queues/%2F/made.q")
    _close_notes(page)
    page.click("Unbind")
    page.until(lambda _: rows(connection, "bindings", "made.x", "source") == [])
    confirm(page, "Delete", "made.q")
    page.open("exchanges/%2F/made.x")
    confirm(page, "Delete", "made.x")
    assert [rows(connection, "queues", "made.q"), rows(connection, "exchanges", "made.x")] == [[], []]
    page.open("topics")
    fill_in(page, "Declare a topic", "Declare", name="made.t", partitions="3")
    assert rows(connection, "topics", "made.t")[0]["partitions"] == 3
    page.open("topics/%2F/made.t")
    confirm(page, "Delete the topic", "made.t")
    assert rows(connection, "topics", "made.t") == []
