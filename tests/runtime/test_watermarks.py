"""Memory and disk watermarks."""

from pathlib import Path

from shardmq.runtime.watermarks import MEMORY_CLEAR_SHARE, WATCH_SECONDS, Watermark, WatermarkMonitor
from shardmq.storage.engine import Room


def test_the_memory_alarm_goes_off_well_below_where_it_went_on() -> None:
    taken = 0
    monitor = WatermarkMonitor("gateway-0", 1000, "clients have to read", lambda: taken)
    now, changed = 0.0, list[Watermark]()
    for size in (1000, 1001, 1000, int(1000 * MEMORY_CLEAR_SHARE) + 1, int(1000 * MEMORY_CLEAR_SHARE), 1000):
        taken = size
        now += WATCH_SECONDS
        changed += monitor.look(now)
    assert [(mark.resource, mark.is_on) for mark in changed] == [("memory", True), ("memory", False)]
    assert changed[0].text == "memory alarm on gateway-0 set: 0 MB of 0 MB taken; clients have to read"
    taken = 5000
    assert not monitor.look(now + WATCH_SECONDS / 2), "it is not measured all the time"
    assert monitor.look(now + WATCH_SECONDS)


def test_a_full_store_sets_the_disk_alarm_at_once(tmp_path: Path) -> None:
    monitor = WatermarkMonitor("shard-0", 1 << 60, "consume")
    monitor.watch_disk(tmp_path, 100)
    assert not monitor.look(0.0, Room(1 << 30, 0, 0))
    (mark,) = monitor.look(0.1, Room(1 << 30, 0, 0), is_full=True)
    assert (mark.resource, mark.is_on) == ("disk", True)
    assert "what is left is kept for acknowledgements" in mark.text
    (mark,) = monitor.look(1.0, Room(1 << 30, 0, 0))
    assert not mark.is_on


def test_the_disk_alarm_counts_free_pages_of_the_store(tmp_path: Path) -> None:
    monitor = WatermarkMonitor("shard-0", 1 << 60, "consume")
    monitor.watch_disk(tmp_path, 100)
    changed = [
        [mark.is_on for mark in monitor.look(float(now), Room(free, inside, 0))]
        for now, (free, inside) in enumerate([(60, 40), (60, 39), (60, 49), (60, 51)])
    ]
    assert changed == [[], [True], [], [False]]
    assert monitor.is_pressed


def test_the_disk_alarm_says_when_it_is_not_the_disk_that_is_full(tmp_path: Path) -> None:
    monitor = WatermarkMonitor("shard-0", 1 << 60, "consume")
    monitor.watch_disk(tmp_path, 100)
    (mark,) = monitor.look(0.0, Room(60, 0, 0, is_capped=True))
    assert mark.is_on
    assert mark.text.endswith("may not grow by more, whatever the disk has; consume what is queued")
