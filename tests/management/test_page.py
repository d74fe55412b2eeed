"""The page in a real browser, over a real broker: what people do with it."""

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker

from .breaking import lose_a_shard, lose_the_broker, read_what_is_damaged
from .browser import Browser
from .command_lines import ASKING, filled_lines_of
from .keyboard import come_back_from_dialogs, stay_in_a_list, turn_pages
from .managing import manage_people, manage_routes
from .operating import cancel_long_work, edit_and_publish, edit_packed, redrive_of_one_reason, redrive_one, watch
from .searching import look_with_all_filters, search_a_topic
from .shovelling import add_and_delete_shovels
from .window import Page, chromium, start_chromium

if chromium() is None:
    if os.environ.get("SHARDMQ_PEERS") == "required":
        pytest.fail("there is no Chromium", pytrace=False)
    pytest.skip("there is no Chromium", allow_module_level=True)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    made = start_chromium(tmp_path_factory.mktemp("profile"))
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
    page.log_out()
    page.fill("user", "guest")
    page.fill("password", "wrong")
    page.click("Log in")
    page.sees("The user or the password is wrong")


@pytest.mark.usefixtures("channel")
def test_the_overview_is_shown(page: Page) -> None:
    page.open("overview")
    page.sees("Fullest queues")
    page.sees("orders.eu")
    page.sees("99 %: ≤")
    page.until(lambda driver: driver.find_elements(By.CSS_SELECTOR, ".chart canvas"))
    page.shot("overview")
    span = "[aria-label^='Messages in queues'] canvas"
    page.find(".head select option[value='1d']").click()
    page.until(lambda driver: driver.current_url.endswith("?span=1d") and driver.find_elements(By.CSS_SELECTOR, span))
    page.open("processes")
    page.sees(" MiB")


@pytest.mark.usefixtures("channel")
def test_a_stuck_queue_says_why(page: Page) -> None:
    page.open("queues?sort=messages&reverse=1")
    page.sees("billing")
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
    look_with_all_filters(page)
    page.find("details summary").click()
    assert channel.queue_declare("orders.us", passive=True).messages == 20
    page.click("Where did it go?")
    page.sees("Now it would pass orders and go to orders.us.")
    page.sees("queue: it waits there")


def test_a_search_of_a_topic_shows_progress_and_is_cancelled(page: Page, channel: shardmq.Channel) -> None:
    search_a_topic(page, channel)


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


def test_a_group_is_reset_after_a_dry_run(page: Page, connection: shardmq.Connection, channel: shardmq.Channel) -> None:
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
    with connection.channel() as member:
        member.basic_consume("events", lambda _message: None, prefetch=3, arguments=LIVE)
        name = next(row["connection"] for row in connection.topology("consumers") if row["queue"] == "events")
        page.sees_soon(f"live: {name}.")
        page.sees_soon("3 unacked")


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
    page.click("What would change?", "dialog[@open]")
    page.sees("max-length: none → 5")
    assert channel.queue_declare("orders.eu", passive=True).messages == 40
    page.click("Set", "dialog[@open]")
    page.until(lambda _: channel.queue_declare("orders.eu", passive=True).messages == 5)


def test_dead_letters_of_one_reason_are_redriven_after_a_dry_run(page: Page, channel: shardmq.Channel) -> None:
    redrive_of_one_reason(page, channel)


def test_queues_are_watched_in_the_list_and_their_consumers_timed(page: Page, connection: shardmq.Connection) -> None:
    watch(page, connection)


def test_one_dead_letter_is_redriven(page: Page, managed: Broker, channel: shardmq.Channel) -> None:
    redrive_one(page, channel, managed.url)


def test_a_message_is_edited_and_a_copy_published(page: Page, managed: Broker, channel: shardmq.Channel) -> None:
    edit_and_publish(page, channel, managed.url)


def test_a_packed_body_is_edited_and_packed_again(page: Page, channel: shardmq.Channel) -> None:
    edit_packed(page, channel)


def test_what_takes_long_is_cancelled(page: Page, channel: shardmq.Channel) -> None:
    cancel_long_work(page, channel)


def test_a_transaction_is_given_up(page: Page, channel: shardmq.Channel, connection: shardmq.Connection) -> None:
    transaction = channel.transaction("half a batch")
    transaction.publish("", "billing", b"staged")
    page.open("transactions")
    page.sees("half a batch")
    page.click("Abort")
    page.find("dialog[open] input").send_keys("half a batch")
    page.click("Abort", "dialog[@open]")
    page.sees("Aborted half a batch.")
    assert connection.topology("transactions") == []


def test_shovels_are_added_restarted_and_deleted(
    page: Page, managed: Broker, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    add_and_delete_shovels(page, managed.url, connection, channel)


def test_what_is_made_changed_and_deleted_on_the_page_is_so_in_the_broker(
    page: Page, connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    manage_people(page, connection)
    manage_routes(page, connection, channel)


def test_definitions_are_imported(page: Page, channel: shardmq.Channel, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    queue = {"name": "imported", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    file.write_text(json.dumps({"queues": [queue]}))
    page.open("definitions")
    page.find("input[type='file']").send_keys(str(file))
    page.click("Import")
    page.sees("Imported the definitions.")
    assert channel.queue_declare("imported", passive=True).messages == 0


def test_every_command_line_does_what_the_page_does(
    page: Page, managed: Broker, connection: shardmq.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = filled_lines_of(page, managed.url, connection)
    monkeypatch.setenv("SHARDMQ_URL", managed.url)
    monkeypatch.setenv("SHARDMQ_NEW_PASSWORD", "secret")
    monkeypatch.chdir(tmp_path)
    assert "shardmq queue purge --vhost 'eu west' -- '-odd'\\''s'" in lines
    redrive = "shardmq dead-letters redrive --reason expired --source made --older-than 3600"
    assert f"{redrive} --vhost 'eu west' -- '-odd'\\''s'" in lines
    for words in ("add made", "tags a-user management", "password a-user"):
        assert f"shardmq user {words}" in lines
    assert "shardmq permission clear --vhost 'eu west' guest" in lines
    assert len(lines) > 30
    for line in lines:
        _, *words = shlex.split(line)
        if " ".join(words[:2]) in ASKING:
            words.insert(2, "--yes")
        assert run(words) == 0, line
    assert "eu west" not in {row["name"] for row in connection.topology("vhosts")}


def test_users_without_rights_are_told(page: Page, managed: Broker, connection: shardmq.Connection) -> None:
    connection.user_put("looker", "looks", tags=["management"])
    connection.permission_put("looker", "/", "", "", ".*")
    page.log_in("looker", "looks")
    assert [each.text for each in page.driver.find_elements(By.CSS_SELECTOR, "nav a")][-1] == "Virtual hosts"
    page.open("users")
    page.sees("You may not see this: Not administrator user")
    page.open("shovels")
    page.sees("There are none.")
    assert "Add a shovel" not in page.text("main")
    page.open("queues/%2F/billing")
    page.click("Purge")
    page.find("dialog[open] input").send_keys("billing")
    with Browser(managed.management_url) as admin:
        ready = admin.get("/queues/%2F/billing")["messages_ready"]
        admin.ask("PUT", "/permissions/%2F/looker", {"configure": "", "write": "", "read": ""})
        page.click("Purge", "dialog[@open]")
        page.until(lambda driver: driver.find_elements(By.CSS_SELECTOR, ".toasts .note.bad"))
        assert admin.get("/queues/%2F/billing")["messages_ready"] == ready
        admin.delete("/users/looker")
    page.sees_soon("Your login has ended")
    page.log_in("guest", "guest")


LIVE = {"x-group": "live", "x-stream-offset": "first"}

VIEWS = (
    *("overview", "queues", "queues/%2F/billing", "dead-letters", "dead-letters/%2F/grave", "transactions", "topics"),
    *("topics/%2F/events", "exchanges", "exchanges/%2F/orders", "topology", "trace", "shovels", "connections"),
    *("policies", "users", "vhosts", "processes", "definitions"),
)

PICTURES = {"overview-dark", "queues-light"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.usefixtures("channel")
def test_views_are_for_everybody(page: Page, scheme: str) -> None:
    page.driver.execute_script("localStorage.setItem('shardmq.scheme', arguments[0])", scheme)
    page.load_anew()
    for view in VIEWS:
        page.open(view)
        page.find("main h1")
        assert page.lines("main"), view
        assert page.violations(scheme == "dark") == [], view
        if f"{view}-{scheme}" in PICTURES:
            page.shot(f"{view}-{scheme}")


@pytest.mark.parametrize("width", [390, 2560])
@pytest.mark.usefixtures("channel")
def test_views_fit_any_width(page: Page, width: int) -> None:
    with page.as_wide_as(width):
        for view in VIEWS:
            page.open(view)
            page.find("main h1")
            page.fits()
        if width < 600:
            page.open("queues")
            page.sees("billing")
            page.shot("phone")


@pytest.mark.usefixtures("channel")
def test_the_keyboard_is_enough_to_get_somewhere(page: Page) -> None:
    page.open("overview")
    page.find("main h1")
    page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL, "k")
    page.find("dialog[open] input").send_keys("billi")
    page.until(lambda driver: "billing" in driver.find_element(By.CSS_SELECTOR, ".jump a.chosen").text)
    page.find("dialog[open] input").send_keys(Keys.ENTER)
    page.until(lambda driver: driver.current_url.endswith("#/queues/%2F/billing"))


def test_the_keyboard_is_seen_and_stays_where_it_was(page: Page, channel: shardmq.Channel) -> None:
    stay_in_a_list(page, channel)
    turn_pages(page, channel)
    come_back_from_dialogs(page, channel)


def test_the_page_says_that_the_broker_is_gone_and_recovers(page: Page, managed: Broker) -> None:
    lose_the_broker(page, managed)


def test_a_shard_that_is_away_and_a_damaged_queue_are_told(
    page: Page, managed: Broker, channel: shardmq.Channel
) -> None:
    lose_a_shard(page, managed, channel)
    read_what_is_damaged(page, channel)


@pytest.mark.usefixtures("channel")
def test_nothing_went_wrong_in_the_browser(page: Page) -> None:
    lines = [each["message"] for each in page.driver.get_log("browser")]
    expected = ("Failed to load resource", "ERR_CONNECTION_REFUSED")
    asked = "return performance.getEntriesByType('resource').map((each) => each.name)"
    assert [url for url in page.driver.execute_script(asked) if not url.startswith(page.url)] == []
    assert [line for line in lines if not any(each in line for each in expected)] == []
