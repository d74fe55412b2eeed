"""The page in a real browser, over a real broker: what people do with it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

import shardmq
from shardmq.cmd.run.broker import Broker

from .browser import Browser

PEERS = Path(__file__).parents[2] / ".venv" / "peers"
AXE = PEERS / "node" / "node_modules" / "axe-core" / "axe.min.js"
SHOTS = os.environ.get("SHARDMQ_SCREENSHOTS", "")
"""A folder for pictures of the views; none are taken without."""

WAIT_SECONDS = 30
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def chromium() -> tuple[str, str, str] | None:
    """Chromium, its driver, and where the libraries are that the machine lacks."""
    fetched = PEERS / "browser" / "usr"
    if (fetched / "lib/chromium/chromium").exists():
        return str(fetched / "lib/chromium/chromium"), str(fetched / "bin/chromedriver"), str(fetched / "lib")
    found = shutil.which("chromium"), shutil.which("chromedriver")
    return (found[0], found[1], "") if found[0] and found[1] else None


if chromium() is None:
    if os.environ.get("SHARDMQ_PEERS") == "required":
        pytest.fail("there is no Chromium", pytrace=False)
    pytest.skip("there is no Chromium", allow_module_level=True)


class Page:
    """A window of the browser, and what people do in it."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def until(self, what: Callable[[webdriver.Chrome], Any]) -> Any:
        waiting = WebDriverWait(self.driver, WAIT_SECONDS, 0.05, [StaleElementReferenceException])
        return waiting.until(what)

    def open(self, place: str) -> None:
        self.driver.get(f"{self.url}#/{place}")

    def find(self, selector: str) -> WebElement:
        found = self.until(lambda driver: driver.find_elements(By.CSS_SELECTOR, selector))
        assert isinstance(found[0], WebElement)
        return found[0]

    def click(self, text: str, inside: str = "") -> None:
        """Click a button or link by its text, in what a selector finds."""
        within = f"//{inside}" if inside else ""
        path = f"{within}//button[normalize-space()='{text}'] | {within}//a[normalize-space()='{text}']"

        def clicked(driver: webdriver.Chrome) -> bool:
            found = [each for each in driver.find_elements(By.XPATH, path) if each.is_displayed() and each.is_enabled()]
            if found:
                found[0].click()
            return bool(found)

        self.until(clicked)

    def sees(self, text: str) -> None:
        self.until(lambda driver: text in driver.find_element(By.ID, "page").text)

    def fill(self, name: str, value: str, inside: str = "") -> None:
        field = self.find(f"{inside} [name='{name}']")
        field.clear()
        field.send_keys(value)

    def log_in(self, user: str, password: str) -> None:
        self.driver.delete_all_cookies()
        self.driver.get(self.url)
        self.driver.refresh()
        self.fill("user", user)
        self.fill("password", password)
        self.click("Log in")
        self.find("nav a")

    def shot(self, name: str) -> None:
        if SHOTS:
            self.driver.save_screenshot(str(Path(SHOTS) / f"{name}.png"))

    def violations(self) -> list[str]:
        """What axe finds wrong with the view for people who cannot see it, or have no mouse."""
        self.driver.execute_script(AXE.read_text())
        script = "const done = arguments[0]; axe.run().then((found) => done(found.violations))"
        found = self.driver.execute_async_script(script)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    place = chromium()
    assert place is not None
    binary, chromedriver, libraries = place
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    paths = ":".join(str(each) for each in Path(libraries).rglob("x86_64-linux-gnu")) if libraries else ""
    environment = {**os.environ, "LD_LIBRARY_PATH": paths} if paths else dict(os.environ)
    service = webdriver.ChromeService(chromedriver, env=environment)
    made = webdriver.Chrome(options, service)
    made.set_script_timeout(WAIT_SECONDS)
    try:
        yield made
    finally:
        made.quit()


@pytest.fixture(scope="module")
def page(driver: webdriver.Chrome, managed: Broker) -> Page:
    shown = Page(driver, managed.management_url)
    shown.log_in("guest", "guest")
    return shown


@pytest.fixture(scope="module")
def connection(managed: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(managed.url) as connection:
        yield connection


@pytest.fixture(scope="module")
def channel(connection: shardmq.Connection) -> shardmq.Channel:
    channel = connection.channel()
    channel.exchange_declare("orders", "topic")
    for name, key in (("orders.eu", "eu.#"), ("orders.us", "us.#"), ("billing", "*.paid")):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, "orders", key)
    for number in range(60):
        key = ("eu.paid", "us.new", "eu.new")[number % 3]
        properties = shardmq.Properties(content_type="application/json", headers={"tenant": "acme"})
        channel.basic_publish("orders", key, b'{"order": %d}' % number, properties)
    return channel


def test_a_wrong_password_is_told(driver: webdriver.Chrome, managed: Broker) -> None:
    page = Page(driver, managed.management_url)
    driver.delete_all_cookies()
    driver.get(page.url)
    driver.refresh()
    page.fill("user", "guest")
    page.fill("password", "wrong")
    page.click("Log in")
    page.sees("The user or the password is wrong")


@pytest.mark.usefixtures("channel")
def test_the_overview_is_shown(page: Page) -> None:
    page.log_in("guest", "guest")
    page.open("overview")
    page.sees("Fullest queues")
    page.sees("orders.eu")
    page.shot("overview")


@pytest.mark.usefixtures("channel")
def test_a_stuck_queue_says_why(page: Page) -> None:
    page.open("queues?sort=messages&reverse=1")
    page.sees("billing")
    page.shot("queues")
    page.click("billing")
    page.sees("20 messages wait, and nobody consumes this queue.")
    page.shot("queue")


def test_messages_are_looked_at_and_stay(page: Page, channel: shardmq.Channel) -> None:
    page.open("queues/%2F/orders.us")
    page.fill("text", '"order": 4}')
    page.click("Look")
    page.sees("1 shown, 20 looked at")
    page.find("details summary").click()
    page.sees('"order": 4')
    page.sees('tenant: "acme"')
    assert channel.queue_declare("orders.us", passive=True).messages == 20


def test_messages_are_moved(page: Page, channel: shardmq.Channel) -> None:
    channel.queue_declare("aside", durable=True)
    page.open("queues/%2F/orders.us")
    page.click("Move messages")
    page.fill("to", "aside", "dialog[open]")
    page.click("Move", "dialog[@open]")
    page.sees("Moved 20 messages.")
    assert channel.queue_declare("aside", passive=True).messages == 20


def test_a_purge_has_to_be_typed(page: Page, channel: shardmq.Channel) -> None:
    page.open("queues/%2F/aside")
    page.click("Purge")
    typed = page.find("dialog[open] input")
    typed.send_keys("asid")
    assert not page.find("dialog[open] button.danger").is_enabled()
    typed.send_keys("e")
    page.click("Purge", "dialog[@open]")
    page.sees("Purged aside.")
    assert channel.queue_declare("aside", passive=True).messages == 0


@pytest.mark.usefixtures("channel")
def test_a_key_is_tried_on_the_graph(page: Page) -> None:
    page.open("topology")
    page.sees("orders.eu")
    page.fill("exchange", "orders")
    page.fill("key", "eu.paid")
    page.click("Try the key")
    page.sees("It would go to billing, orders.eu.")
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".node.hit")) == 3
    page.shot("topology")


def test_a_group_is_reset_after_a_dry_run(page: Page, channel: shardmq.Channel) -> None:
    channel.topic_declare("events", 2)
    for number in range(10):
        channel.basic_publish("events", f"key-{number}", b"x")
    ends = {row["partition"]: row["next"] for row in channel.topic_info("events")["partitions"]}
    channel.group_commit("events", "readers", ends)
    page.open("topics/%2F/events")
    page.sees("readers")
    page.shot("topic")
    page.click("Reset")
    page.click("Reset", "dialog[@open]")
    page.sees("It would read 10 messages again or skip them.")
    assert sum(row["lag"] for row in channel.group_offsets("events", "readers")) == 0
    page.click("Reset")
    page.find("dialog[open] input[name='dry']").click()
    page.click("Reset", "dialog[@open]")
    page.until(lambda _: sum(row["lag"] for row in channel.group_offsets("events", "readers")) == 10)


def test_a_connection_is_closed_with_a_reason(page: Page, managed: Broker, connection: shardmq.Connection) -> None:
    before = {row["name"] for row in connection.topology("connections")}
    victim = shardmq.connect(managed.url, recovery=None)
    (name,) = {row["name"] for row in connection.topology("connections")} - before
    page.open(f"connections/{quote(name, safe='')}")
    page.click("Close the connection")
    page.fill("reason", "for the test", "dialog[open]")
    page.click("Close it", "dialog[@open]")
    page.sees("Closed the connection.")
    page.until(lambda driver: driver.current_url.endswith("#/connections"))
    page.until(lambda _: not victim.is_open)


def test_a_policy_is_set_after_a_look(page: Page, channel: shardmq.Channel) -> None:
    page.open("policies")
    page.click("Set a policy")
    page.fill("name", "short", "dialog[open]")
    page.fill("pattern", "^orders", "dialog[open]")
    page.fill("definition", '{"max-length": 5}', "dialog[open]")
    page.click("Set", "dialog[@open]")
    page.until(lambda _: channel.queue_declare("orders.eu", passive=True).messages == 5)


def test_users_without_rights_are_told(page: Page, managed: Broker, connection: shardmq.Connection) -> None:
    connection.user_put("looker", "looks", tags=["management"])
    connection.permission_put("looker", "/", "", "", ".*")
    page.log_in("looker", "looks")
    assert [each.text for each in page.driver.find_elements(By.CSS_SELECTOR, "nav a")][-1] == "Virtual hosts"
    page.open("users")
    page.sees("You may not see this: Not administrator user")
    page.open("queues/%2F/billing")
    page.click("Purge")
    page.find("dialog[open] input").send_keys("billing")
    with Browser(managed.management_url) as admin:
        ready = admin.get("/queues/%2F/billing")["messages_ready"]
        admin.ask("PUT", "/permissions/%2F/looker", {"configure": "", "write": "", "read": ""})
        page.click("Purge", "dialog[@open]")
        page.until(lambda driver: driver.find_elements(By.CSS_SELECTOR, ".toasts .note.bad"))
        assert admin.get("/queues/%2F/billing")["messages_ready"] == ready
    page.log_in("guest", "guest")


VIEWS = (
    *("overview", "queues", "queues/%2F/billing", "topics", "exchanges", "exchanges/%2F/orders", "topology"),
    *("connections", "policies", "users", "vhosts", "processes", "definitions"),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.usefixtures("channel")
def test_views_are_for_everybody(page: Page, scheme: str) -> None:
    page.driver.execute_script("localStorage.setItem('shardmq.scheme', arguments[0])", scheme)
    page.driver.refresh()
    for view in VIEWS:
        page.open(view)
        page.find("main h1")
        page.until(lambda driver: "Loading…" not in driver.find_element(By.ID, "page").text)
        assert page.violations() == [], view
        page.shot(f"{view.split('/')[0]}-{scheme}")


@pytest.mark.parametrize("width", [390, 2560])
@pytest.mark.usefixtures("channel")
def test_views_fit_any_width(page: Page, width: int) -> None:
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    try:
        for view in VIEWS:
            page.open(view)
            page.find("main h1")
            overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.driver.execute_script(overflow) <= 0, view
        page.shot(f"width-{width}")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.usefixtures("channel")
def test_the_keyboard_is_enough_to_get_somewhere(page: Page) -> None:
    page.open("overview")
    page.find("main h1")
    page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    page.find("dialog[open] input").send_keys("billi")
    page.until(lambda driver: "billing" in driver.find_element(By.CSS_SELECTOR, ".jump a.chosen").text)
    page.find("dialog[open] input").send_keys(Keys.ENTER)
    page.until(lambda driver: driver.current_url.endswith("#/queues/%2F/billing"))


@pytest.mark.usefixtures("channel")
def test_the_page_says_that_the_broker_is_gone_and_recovers(page: Page) -> None:
    page.open("queues")
    page.sees("billing")
    page.driver.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    page.sees("The broker does not answer.")
    page.sees("billing")
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
    page.until(lambda driver: "does not answer" not in driver.find_element(By.ID, "page").text)


@pytest.mark.usefixtures("channel")
def test_nothing_went_wrong_in_the_browser(page: Page) -> None:
    lines = [each["message"] for each in page.driver.get_log("browser")]
    expected = ("Failed to load resource", "ERR_INTERNET_DISCONNECTED")
    assert [line for line in lines if not any(each in line for each in expected)] == []
