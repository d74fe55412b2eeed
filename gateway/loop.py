"""One pass: links drained, batches closed, one envelope a shard and one write a client.

A pass is one turn of the event loop: everything read in it is gathered by shard and by client and sent on at its end.
Under load passes grow, and so do the record batches; nothing waits for a timer, except where a busy gateway has many
clients that speak seldom (`Gathering`).
"""

import asyncio
import contextlib
import time
from typing import Final

from shardmq.bus.coordinator_link import CoordinatorLink
from shardmq.bus.spinning import CONVERSATION_BYTES, CONVERSATION_EVENTS
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.wakefulness import Wakefulness

TICK_SECONDS: Final = 0.1
"""How often links and deadlines are looked after."""

TICK_AT_REST_SECONDS: Final = 0.5
"""The same, when nothing has happened since the last time and every link is open: still twice for every ping."""

SIZES_NOTED: Final = 1024
"""Sizes of published bodies that are counted together: it takes 2 µs, however few they are."""

FEW: Final = 3
"""Messages of a pass, on average. With more, forwarding saves less than smaller batches cost: with a window of 1,000
messages to 1,000 queues, 73,000 a second became 60,000."""

TICKS: Final = 2
"""Over about so many that average is taken: what holds up everybody for a moment makes many come together."""


class GatewayLoop:
    """Drains the links of a gateway, ends its passes, and ticks.

    Args:
        state: of the gateway; its `wake` is set.
    """

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._is_busy = True  # since the last tick
        self._woken = asyncio.Event()
        self._awake = Wakefulness(self._loop)
        self._serial = self._serial_at_tick = state.next_serial
        self._passes_at_tick = state.passes
        self._together = 0.0  # messages of a pass, on average
        state.wake = self._wake
        state.on_link = self._read
        for link in state.all_links:
            self._read(link)

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            self.tick(time.monotonic())
            if self._is_busy or not all(link.dialer.is_open for link in self._state.all_links):
                self._is_busy = False
                due = time.monotonic() + TICK_SECONDS
                await asyncio.sleep(TICK_SECONDS)
                self._state.traffic.loop_seconds.add(time.monotonic() - due)
                continue
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_AT_REST_SECONDS):
                    await self._woken.wait()

    def tick(self, now: float) -> None:
        """Look after links and deadlines at monotonic time `now`."""
        self._look_for_crowds()
        for link in self._state.all_links:
            link.tick(now)
            self._drain(link)  # ticking sends, too; see _send
        gathering = self._state.gathering
        gathering.look(now, time.process_time() - self._awake.seconds)
        self._awake.decide(now, gathering.is_awaited, gathering.bytes_per_s, gathering.busy_share)
        for call in self._state.ticking:
            call(now)
        self._send()

    def _look_for_crowds(self) -> None:
        """Have nothing forwarded where each pass has many messages: they make larger batches by way of their shards."""
        state = self._state
        messages, passes = state.next_serial - self._serial_at_tick, state.passes - self._passes_at_tick
        self._serial_at_tick, self._passes_at_tick = state.next_serial, state.passes
        self._together += (messages / max(1, passes) - self._together) / TICKS
        for link in state.links:
            link.forwarding.is_crowded = self._together > FEW

    def close(self) -> None:
        """Stop reading links, and close them."""
        for link in self._state.all_links:
            self._loop.remove_reader(link.dialer.socket.fileno())
        self._state.close()

    def _read(self, link: ShardLink | CoordinatorLink) -> None:
        self._loop.add_reader(link.dialer.socket.fileno(), self._drain, link)

    def _wake(self) -> None:
        self._awake.is_due = True
        self._loop.call_soon(self._gather if self._state.gathering.is_on else self._end_pass)

    def _gather(self) -> None:
        """Have the pass end when more clients have said something: they are read in between."""
        self._state.gathering.wait()
        self._loop.call_soon(self._end_pass)

    def _drain(self, link: ShardLink | CoordinatorLink) -> None:
        """Read a link until it is dry: its file descriptor is edge-triggered and does not call twice."""
        if link.receive():
            self._loop.call_soon(self._drain, link)

    def _end_pass(self) -> None:
        state = self._state
        state.is_flush_due = False
        state.passes += 1
        if not self._is_busy:
            self._is_busy = True
            self._woken.set()
        sizes = state.traffic.sizes
        if len(sizes.noted) >= SIZES_NOTED:
            sizes.settle()
        if self._awake.is_on:
            self._converse()
        else:
            self._send()

    def _converse(self) -> None:
        """Send, and stay awake for what that brings; acks alone bring nothing."""
        state = self._state
        began = time.monotonic()
        asks = [link for link in state.all_links if link.dialer.has_posted]
        clients = len(state.writers)
        written = self._send()
        published, self._serial = state.next_serial - self._serial, state.next_serial
        is_small = max(clients, published) <= CONVERSATION_EVENTS and written <= CONVERSATION_BYTES
        self._awake.passed(began, bool(asks or published or written), is_small)

    def _send(self) -> int:
        """Send what was gathered; returns how many bytes clients were written."""
        state = self._state
        retuned, state.retuned = state.retuned, []
        for channel in retuned:
            channel.retune()
        following: list[ShardLink] = []
        for link in state.links:
            if link.confirms.growing or link.touched or link.dialer.has_posted:
                link.forward()
                if link.may_follow:
                    following.append(link)
                else:
                    self._flush(link)
            if link.newest is not None:
                age_ms = state.now_ms - link.newest.timestamp_ms
                state.traffic.delivery_seconds.add(age_ms / 1000)
                link.newest = None
        writers, state.writers = state.writers, []
        written = 0
        for writer in writers:
            written += writer.flush()
        for link in following:
            self._flush(link)
        if state.coordinator.dialer.has_posted:  # last: a client that declared waits, not for the coordinator to hear
            self._flush(state.coordinator)
        return written

    def _flush(self, link: ShardLink | CoordinatorLink) -> None:
        # Sending may have eaten the edge that told of something to read (libzmq's ZMQ_FD).
        if link.flush() and link.dialer.has_news:
            self._drain(link)
