"""A client's stay on this gateway, whatever its protocol: who it is, and its channels."""

from shardmq.errors import ChannelError
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.limits import CHANNELS_MAX


class Session:
    """What one client connection has from when it is let in until one of us closes.

    Attributes:
        client: who it is.
        channels: those that are open, by number.
    """

    __slots__ = ("channels", "client")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.channels: dict[int, Channel] = {}

    def open_channel(self, number: int, most: int = CHANNELS_MAX) -> Channel:
        """Open channel `number`; `most` is the last number there is.

        Raises:
            ChannelError: it is open already, or no number for a channel.
        """
        if number in self.channels:
            raise ChannelError(f"channel {number} is open already")
        if not 1 <= number <= most:
            raise ChannelError(f"channel {number} cannot be opened; channels are 1 to {most}")
        channel = self.channels[number] = Channel(self.client, number)
        self.client.channels += 1
        self.client.state.traffic.churn["channels_opened"] += not self.client.serves_http
        self.client.state.events.channel_created(self.client, number)
        return channel

    def close_channel(self, number: int) -> None:
        """Close a channel, if it is open; what is unacked on it returns to its queues."""
        channel = self.channels.pop(number, None)
        if channel is not None:
            self.client.channels -= 1
            self.client.state.traffic.churn["channels_closed"] += not self.client.serves_http
            channel.close()
            self.client.state.events.channel_closed(self.client, number)

    def close(self) -> None:
        """Close all channels: the connection is gone."""
        for number in list(self.channels):
            self.close_channel(number)
        self.client.account.close()

    def socket_has_room(self) -> None:
        """Give consumers credit: the client reads again."""
        for channel in self.channels.values():
            channel.consumers.socket_has_room()
