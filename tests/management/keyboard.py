"""The page without a mouse: where the keyboard goes, that it can be seen, and that it is never lost."""

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import shardmq

from .window import Page

WHERE = """const at = document.activeElement, style = getComputedStyle(at);
const isSeen = at.matches(':focus-visible') && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
const label = [...(at.labels?.[0]?.childNodes ?? [])].filter((each) => each.nodeType === 3).map((each) => each.data);
return [at.ariaLabel || label.join('').trim() || at.innerText.split('\\n')[0].trim(), isSeen, at.tagName]"""
"""The name of what has the keyboard, whether that can be seen, and its tag."""


def press(page: Page, *keys: str, shift: bool = False) -> str:
    """Press keys one after the other, on whatever has the keyboard; returns the name of what has it then."""
    chain = ActionChains(page.driver, duration=0)
    if shift:
        chain = chain.key_down(Keys.SHIFT)
    for key in keys:
        chain = chain.send_keys(key)
    (chain.key_up(Keys.SHIFT) if shift else chain).perform()
    return where(page)


def where(page: Page) -> str:
    """The name of what has the keyboard, which has to be seen."""
    name, is_seen, tag = page.driver.execute_script(WHERE)
    assert is_seen or tag in ("BODY", "MAIN", "DIALOG"), f"nobody sees that the keyboard is on {tag} '{name}'"
    return str(name)


def is_at(page: Page, name: str) -> None:
    """Wait until this has the keyboard."""
    page.until(lambda _: page.driver.execute_script(WHERE)[0] == name)


def tab_to(page: Page, name: str, most: int = 60) -> list[str]:
    """Press Tab until this has the keyboard; returns what had it on the way."""
    passed: list[str] = []
    while not passed or passed[-1] != name:
        assert len(passed) < most, passed
        passed.append(press(page, Keys.TAB))
    return passed


def narrowed(page: Page) -> None:
    """Nothing in the dialog has to be scrolled sideways on a telephone, or on a wall."""
    for width in (390, 2560):
        with page.as_wide_as(width):
            page.find("dialog[open]")
            page.fits()


def stay_in_a_list(page: Page, channel: shardmq.Channel) -> None:
    """Go through the list of queues in the order of what is seen; a row that comes above takes nothing away."""
    channel.queue_declare("key.b", durable=True)
    page.load_anew("queues?name=key.")
    page.sees("key.b")
    passed = tab_to(page, "key.b")
    order = ["To the content", "shardmq", "Overview", "Queues", "Log out", "Search by name", "regular expression"]
    order += ["Declare a queue", "Queues", "Name ↑", "Messages", "Virtual host", "key.b"]
    places = [passed.index(name) for name in order[:-5]]
    places += [passed.index(name, places[-1] + 1) for name in order[-5:]]
    assert places == sorted(places), passed
    channel.queue_declare("key.a", durable=True)
    page.sees_soon("key.a")
    assert where(page) == "key.b"
    press(page, Keys.ENTER)
    page.until(lambda driver: driver.current_url.endswith("#/queues/%2F/key.b"))
    page.until(lambda driver: driver.execute_script("return document.activeElement.id") == "main")
    assert page.driver.title == "key.b · shardmq"
    for name in ("key.a", "key.b"):
        channel.queue_delete(name)


def turn_pages(page: Page, channel: shardmq.Channel) -> None:
    """Go through a long list page by page; the keyboard stays on a button that leads no further."""
    names = [f"leaf-{number:03}" for number in range(105)]
    for name in names:
        channel.queue_declare(name)
    page.open("queues?name=leaf-&sort=name")
    page.sees("100 of 105 that match")
    page.driver.execute_script("arguments[0].focus()", page.find(".pages button:last-child"))  # behind 100 rows
    assert where(page) == "Next"
    press(page, Keys.ENTER)
    page.sees("page 2 of 2")
    page.sees("leaf-104")
    assert where(page) == "Next"
    press(page, Keys.ENTER)
    press(page, Keys.TAB, shift=True)
    press(page, Keys.ENTER)
    page.sees("page 1 of 2")
    page.sees("leaf-000")
    for name in names:
        channel.queue_delete(name)


def come_back_from_dialogs(page: Page, channel: shardmq.Channel) -> None:
    """Leave dialogs by Escape and by doing what they are for; the keyboard is where it was, or near what is gone."""
    for name in ("keys", "keys.work"):
        channel.queue_declare(name, durable=True)
    death = {"queue": "keys.work", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["keys.work"]}
    channel.basic_publish("", "keys", b"1", shardmq.Properties(headers={"x-death": [death]}))
    page.open("queues/%2F/keys")
    page.find("input[name='json']").send_keys(Keys.ENTER)
    page.sees("1 shown, 1 looked at")
    assert tab_to(page, "Look")[-1] == "Look"
    assert press(page, Keys.TAB).startswith("keys from (default), 1 B")
    press(page, Keys.ENTER)
    tab_to(page, "Redrive this one")
    press(page, Keys.ENTER)
    page.sees("It would go back to keys.work")
    assert press(page, Keys.TAB) == "Redrive"
    press(page, Keys.ESCAPE)
    is_at(page, "Redrive this one")
    assert press(page, Keys.TAB) == "Edit and publish a copy"
    press(page, Keys.ENTER)
    page.find("dialog[open] [name='body']")
    names = ["Exchange", "Routing key", "Content type", "Headers, as JSON", "Other properties, as JSON", "Body"]
    passed = [press(page, Keys.TAB) for _ in names]
    assert passed == names, passed
    narrowed(page)
    assert press(page, Keys.TAB) == "Remove the original when the copy is confirmed"
    press(page, Keys.TAB, Keys.ENTER)
    page.sees("Published the copy; the original stays.")
    is_at(page, "Edit and publish a copy")
    assert press(page, Keys.TAB, shift=True) == "Redrive this one"
    press(page, Keys.ENTER)
    page.sees("It would go back to keys.work")
    press(page, Keys.TAB, Keys.ENTER)
    page.sees("It was sent on from here.")
    page.until(lambda driver: driver.switch_to.active_element.tag_name == "summary")
    tab_to(page, "Move messages")
    press(page, Keys.ENTER)
    is_at(page, "To the queue")
    press(page, "keys.work", Keys.ENTER)
    page.until(lambda driver: not driver.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    is_at(page, "Move messages")
    for name in ("keys", "keys.work"):
        channel.queue_delete(name)
