"""The command lines that the page shows, gathered from its views and from what opens in them."""

from datetime import UTC, datetime
from typing import Final

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import shardmq

from .window import Page

LINES: Final = (
    *(("overview", ()), ("connections", ()), ("processes", ()), ("definitions", ()), ("topology?vhost=eu+west", ())),
    ("queues", (("button", "Declare a queue"),)),
    ("exchanges", (("button", "Declare an exchange"),)),
    ("topics", (("button", "Declare a topic"),)),
    ("policies", (("button", "Set a policy"), ("-cap", "Edit"), ("-cap", "Delete"))),
    ("queues/eu%20west/-odd's", (("button", "Bind"), ("button", "Move messages"), ("button", "Purge"))),
    ("exchanges/eu%20west/-fan", (("button", "Bind"),)),
    ("dead-letters?vhost=eu+west&older_than=3600", (("button", "Redrive"),)),
    ("dead-letters/eu%20west/-odd's", ()),
    ("transactions", (("-tx", "Abort"),)),
    ("topics/eu%20west/-log", (("-team", "Reset"), ("button", "Delete the topic"))),
    ("queues/eu%20west/-odd's", (("button", "Delete"),)),
    ("exchanges/eu%20west/-fan", (("button", "Delete"),)),
    ("users", (("button", "Add a user"), ("a-user", "Edit"), ("button", "Set permissions"))),
    ("users", (("eu west", "Clear"), ("a-user", "Delete"))),
    ("vhosts", (("button", "Add a virtual host"), ("eu west", "Delete"))),
)
"""Views, and what is clicked there: a button, or one in the row that has a text."""

FIELDS: Final = "dialog[open] input[name][required], dialog[open] input[type='password']"
"""Fields that are filled in where they are empty."""

ASKING: Final = (
    "queue purge",
    "queue delete",
    "topic delete",
    "group reset",
    "transaction abort",
    "user delete",
    "vhost delete",
)
"""Commands that ask before they lose something."""


def filled_lines_of(page: Page, url: str, connection: shardmq.Connection) -> list[str]:
    """The command lines of all views, over a virtual host with names that need care in a shell."""
    connection.vhost_put("eu west")
    connection.user_put("a-user", "secret", tags=["management"])
    connection.permission_put("guest", "eu west", ".*", ".*", ".*")
    connection.policy_put("eu west", "-cap", {"pattern": "^-odd", "definition": {"max-length": 9}})
    with shardmq.connect(f"{url}eu%20west") as other:
        channel = other.channel()
        for name in ("-odd's", "made"):
            channel.queue_declare(name, durable=True)
        for name in ("-fan", "made"):
            channel.exchange_declare(name, "fanout")
        channel.topic_declare("-log", 1)
        channel.group_commit("-log", "-team", {0: 0})
        dead = {
            "x-death": [{"queue": "made", "reason": "expired", "count": 1, "time": datetime(2001, 1, 1, tzinfo=UTC)}]
        }
        channel.basic_publish("", "-odd's", b"", shardmq.Properties(headers=dead))
        channel.transaction("-tx").publish("", "made", b"staged")
        return lines_of(page)


def lines_of(page: Page) -> list[str]:
    """The command lines of all views and of what opens in them, in this order, each once."""
    found: dict[str, None] = {}
    for view, clicks in LINES:
        page.open(view)
        page.find(".command code" if not view.startswith("exchanges/") else "section.card")
        found.update(dict.fromkeys(page.lines("main")))
        for row, label in clicks:
            page.click(label, "" if row == "button" else f"tr[contains(., '{row}')]")
            page.find("dialog[open] .command code")
            for field in page.driver.find_elements(By.CSS_SELECTOR, FIELDS):
                if not field.get_attribute("value"):
                    field.send_keys("made-topic" if "topic" in label else "made")
                    typed = "user password" if label == "Edit" else "made"
                    page.until(lambda _, typed=typed: any(typed in line for line in page.lines("dialog[open]")))
            found.update(dict.fromkeys(page.lines("dialog[open]")))
            page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
            page.until(lambda driver: not driver.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    return list(found)
