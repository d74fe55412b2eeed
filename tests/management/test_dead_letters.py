"""Dead letters counted, redriven and traced by the management process, over real processes."""

import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.faults.saboteur import until
from tests.management.browser import Browser, Refused


@pytest.fixture(scope="module")
def channel(managed: Broker) -> Iterator[shardmq.Channel]:
    with shardmq.connect(managed.url) as connection:
        yield connection.channel()


def dead(queue: str, reason: str = "expired", at: int = 1_000_000_000) -> shardmq.Properties:
    death = {"queue": queue, "reason": reason, "count": 1, "time": datetime.fromtimestamp(at, UTC)}
    return shardmq.Properties(headers={"x-death": [death]})


def test_dead_letters_of_one_reason_are_redriven_once(channel: shardmq.Channel, admin: Browser) -> None:
    channel.queue_declare("grave", durable=True)
    deaths = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    channel.queue_declare("work", durable=True, arguments=deaths)
    for number in range(6):
        channel.basic_publish("", "work", b"%d" % number)
    for _ in range(6):
        message = channel.basic_get("work")
        assert message is not None
        message.nack(requeue=False)
    path = "/shardmq/queues/%2F/grave"
    until(lambda: channel.queue_declare("grave", passive=True).messages == 6, "all of them are dead")
    channel.basic_publish("", "grave", b"never died")
    (group,) = admin.get(f"{path}/dead-letters")["groups"]
    assert (group["reason"], group["source"], group["messages"]) == ("rejected", "work", 6)
    wanted = {"reason": "rejected", "text": "3"}
    answer = {"dry_run": True, "redriven": 1, "without_queue": 0, "targets": {"work": 1}, "looked_at": 7, "left": 0}
    dry = admin.ask("POST", f"{path}/redrive", {**wanted, "dry_run": True})
    assert dry == {**answer, "next": None, "ranges": [[3, 4]]}
    assert channel.queue_declare("grave", passive=True).messages == 7
    assert admin.ask("POST", f"{path}/redrive", wanted) == {**answer, "next": None, "dry_run": False}
    assert [message.body for message in channel.queue_peek("work", 0, 9)] == [b"3"]
    assert admin.ask("POST", f"{path}/redrive", {"reason": "expired"})["redriven"] == 0
    assert admin.ask("POST", f"{path}/redrive", {"limit": 2})["targets"] == {"work": 2}
    assert [message.body for message in channel.queue_peek("grave", 0, 9)] == [b"2", b"4", b"5", b"never died"]


def test_exactly_what_a_dry_run_has_shown_is_redriven(channel: shardmq.Channel, admin: Browser) -> None:
    for name in ("pit", "shop"):
        channel.queue_declare(name, durable=True)
    for number in range(60):
        headers = {**(dead("shop").headers or {}), "tenant": "acme" if number % 2 else "other"}
        channel.basic_publish("", "pit", b'{"n": %d}' % number, shardmq.Properties(headers=headers))
    path = "/shardmq/queues/%2F/pit/redrive"
    wanted = {"header": ["tenant=acme"], "json": "$.n >= 20", "regex": r"\d", "key": "p*", "dry_run": True}
    first = admin.post(path, {**wanted, "limit": 5})
    assert (first["redriven"], first["targets"], first["next"]) == (5, {"shop": 5}, 30)
    assert first["ranges"] == [[21, 22], [23, 24], [25, 26], [27, 28], [29, 30]]
    others = admin.post(path, {**wanted, "start": first["next"]})
    assert (others["redriven"], others["next"]) == (15, None)
    channel.basic_publish("", "pit", b'{"n": 99}', shardmq.Properties(headers={**headers, "tenant": "acme"}))
    taken = [channel.basic_get("pit") for _ in range(22)]  # the first that was shown is somebody else's now
    moved = admin.post(path, {"ranges": [*first["ranges"], *others["ranges"]]})
    assert (moved["redriven"], moved["targets"]) == (19, {"shop": 19})
    shown = [b'{"n": %d}' % number for number in range(23, 60, 2)]
    assert [message.body for message in channel.queue_peek("shop", 0, 99)] == shown
    assert all(message is not None and not message.redelivered for message in taken)
    with pytest.raises(Refused, match="what a dry run answers"):
        admin.post(path, {"ranges": [[1, 2]], "dry_run": True})
    with pytest.raises(Refused, match="ranges are not those"):
        admin.post(path, {"ranges": [[2, 1]]})


def test_dead_letters_whose_queue_is_gone_stay(channel: shardmq.Channel, admin: Browser) -> None:
    channel.queue_declare("tomb", durable=True)
    headers = {"x-death": [{"queue": "gone", "reason": "expired", "count": 1}]}
    channel.basic_publish("", "tomb", b"stays", shardmq.Properties(headers=headers))
    answer = admin.ask("POST", "/shardmq/queues/%2F/tomb/redrive", {})
    assert (answer["redriven"], answer["without_queue"]) == (0, 1)
    assert channel.queue_declare("tomb", passive=True).messages == 1
    with pytest.raises(Refused) as error:
        admin.ask("POST", "/shardmq/queues/%2F/tomb/redrive", {"dry_run": "yes"})
    assert error.value.status == 400


def test_dead_letters_of_all_queues_are_listed_by_age(channel: shardmq.Channel, admin: Browser) -> None:
    now = int(datetime.now(UTC).timestamp())
    for name in ("crypt", "vault", "alive"):
        channel.queue_declare(name, durable=True)
    channel.basic_publish("", "crypt", b"old", dead("orders", "rejected"))
    channel.basic_publish("", "vault", b"old", dead("mail"))
    channel.basic_publish("", "vault", b"new", dead("mail", at=now))
    channel.basic_publish("", "alive", b"")

    def listed(words: str) -> list[tuple[str, str, str, int]]:
        answer = admin.get(f"/shardmq/dead-letters/%2F?{words}")
        assert (answer["is_partial"], answer["missed"]) == (False, [])
        rows = [row for row in answer["groups"] if row["queue"] in ("crypt", "vault", "alive")]
        return [(row["queue"], row["reason"], row["source"], row["messages"]) for row in rows]

    assert listed("") == [("crypt", "rejected", "orders", 1), ("vault", "expired", "mail", 2)]
    assert listed("newer_than=3600") == [("vault", "expired", "mail", 1)]
    assert listed("older_than=3600&source=mail") == [("vault", "expired", "mail", 1)]
    assert listed("reason=rejected") == [("crypt", "rejected", "orders", 1)]
    (group,) = admin.get("/shardmq/queues/%2F/vault/dead-letters")["groups"]
    assert (group["oldest"], group["newest"]) == (1_000_000_000, now)
    with pytest.raises(Refused) as error:
        admin.get("/shardmq/dead-letters/%2F?older_than=yesterday")
    assert error.value.status == 400


def test_a_message_is_found_with_its_deaths_and_its_route(channel: shardmq.Channel, admin: Browser) -> None:
    channel.exchange_declare("shop", "topic")
    channel.queue_declare("lost", durable=True)
    for name in ("left", "right"):
        deaths = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "lost"}
        channel.queue_declare(name, durable=True, arguments=deaths)
        channel.queue_bind(name, "shop", "order.*")
    channel.basic_publish("shop", "order.new", b"body", shardmq.Properties(message_id="id/7"))
    message = channel.basic_get("left")
    assert message is not None
    message.nack(requeue=False)
    until(lambda: channel.queue_declare("lost", passive=True).messages == 1, "it is dead")
    held = channel.basic_get("right")
    assert held is not None
    answer = admin.get("/shardmq/traces/%2F/id%2F7")
    (copy,) = answer["held"]
    assert (copy["queue"], copy["deaths"][0]["queue"], copy["payload_bytes"]) == ("lost", "left", 4)
    assert answer["route"] == {
        "exchange": "shop",
        "routing_key": "order.new",
        "exchanges": ["shop"],
        "queues": ["left", "right"],
    }
    assert {"queue": "right", "unacknowledged": 1, "delayed": 0} in answer["unseen"]
    held.nack(requeue=True)
    until(lambda: len(admin.get("/shardmq/traces/%2F/id%2F7")["held"]) == 2, "both copies are seen")
    nothing = admin.get("/shardmq/traces/%2F/nobody?exchange=shop&routing_key=order.x")
    assert (nothing["held"], nothing["route"]["queues"]) == ([], ["left", "right"])
    assert admin.get("/shardmq/traces/%2F/nobody")["route"] is None


@pytest.mark.parametrize("victim", ["management", "shard-0", "shard-1", "gateway-0"])
def test_a_redrive_that_a_kill_broke_off_is_sent_again_and_everything_arrives_once(
    managed: Broker, victim: str
) -> None:
    grave, work, count = f"grave-of-{victim}", f"work-of-{victim}", 3000
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        for name in (grave, work):
            channel.queue_declare(name, durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", grave, [b"%d" % number for number in range(count)], dead(work))

        def ask() -> Any:
            with Browser(managed.management_url) as browser:
                return browser.post(f"/shardmq/queues/%2F/{grave}/redrive", {"id": "mine"})

        def asked_again() -> Any:
            try:
                return ask()
            except (OSError, Refused, http.client.HTTPException) as fault:
                print(victim, repr(fault)[:300])
                return None

        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(ask)
            until(lambda: channel.queue_declare(work, passive=True).messages or first.done(), "the first ones arrive")
            managed.kill_and_wait(victim)
            is_broken_off = first.exception(60) is not None
        assert is_broken_off or victim != "management"
        until(asked_again, "the redrive is done", 60)
        until(lambda: channel.queue_declare(grave, passive=True).messages == 0, "the grave is empty")
        bodies = [message.body for message in channel.consume(work, inactivity_timeout=2.0, auto_ack=True)]
        assert sorted(map(int, bodies)) == list(range(count))
