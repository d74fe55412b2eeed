"""Classes connection, channel and access."""

from shardmq.protocol.amqp.methods.fields import Arguments, Bit, Long, LongStr, Method, Octet, Short, ShortStr, method


@method(10, 10, synchronous=True)
class ConnectionStart(Method, frozen=True):
    """The server begins: what it is, and how clients may log in."""

    version_major: Octet
    version_minor: Octet
    server_properties: Arguments
    mechanisms: LongStr
    locales: LongStr


@method(10, 11)
class ConnectionStartOk(Method, frozen=True):
    """The client says what it is, and logs in."""

    client_properties: Arguments
    mechanism: ShortStr
    response: LongStr
    locale: ShortStr


@method(10, 20, synchronous=True)
class ConnectionSecure(Method, frozen=True):
    """One more question of the login mechanism."""

    challenge: LongStr


@method(10, 21)
class ConnectionSecureOk(Method, frozen=True):
    """The client answers the question of the login mechanism."""

    response: LongStr


@method(10, 30, synchronous=True)
class ConnectionTune(Method, frozen=True):
    """The limits that the server proposes: 0 is no limit; the heartbeat is in seconds."""

    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 31)
class ConnectionTuneOk(Method, frozen=True):
    """The limits that the client chose."""

    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 40, synchronous=True)
class ConnectionOpen(Method, frozen=True):
    """Enter a virtual host."""

    virtual_host: ShortStr
    capabilities: ShortStr = ""
    insist: Bit = False


@method(10, 41)
class ConnectionOpenOk(Method, frozen=True):
    """The client is in the virtual host."""

    known_hosts: ShortStr = ""


@method(10, 50, synchronous=True)
class ConnectionClose(Method, frozen=True):
    """End the connection; the ids name the method that was at fault, or are 0."""

    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


@method(10, 51)
class ConnectionCloseOk(Method, frozen=True):
    """The connection has ended."""


@method(10, 60)
class ConnectionBlocked(Method, frozen=True):
    """The server reads no more publishes until an alarm is over (extension of RabbitMQ)."""

    reason: ShortStr


@method(10, 61)
class ConnectionUnblocked(Method, frozen=True):
    """The alarm is over (extension of RabbitMQ)."""


@method(10, 70, synchronous=True)
class ConnectionUpdateSecret(Method, frozen=True):
    """Replace the password or token of the login (extension of RabbitMQ)."""

    new_secret: LongStr
    reason: ShortStr


@method(10, 71)
class ConnectionUpdateSecretOk(Method, frozen=True):
    """The new secret is taken."""


@method(20, 10, synchronous=True)
class ChannelOpen(Method, frozen=True):
    """Open the channel that the frame names."""

    out_of_band: ShortStr = ""


@method(20, 11)
class ChannelOpenOk(Method, frozen=True):
    """The channel is open."""

    channel_id: LongStr = b""


@method(20, 20, synchronous=True)
class ChannelFlow(Method, frozen=True):
    """Pause or resume deliveries."""

    active: Bit


@method(20, 21)
class ChannelFlowOk(Method, frozen=True):
    """Deliveries are paused or resumed."""

    active: Bit


@method(20, 40, synchronous=True)
class ChannelClose(Method, frozen=True):
    """End the channel; the ids name the method that was at fault, or are 0."""

    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


@method(20, 41)
class ChannelCloseOk(Method, frozen=True):
    """The channel has ended."""


@method(30, 10, synchronous=True)
class AccessRequest(Method, frozen=True):
    """Ask for an access ticket, which AMQP 0-8 needed."""

    realm: ShortStr
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@method(30, 11)
class AccessRequestOk(Method, frozen=True):
    """The ticket, which means nothing."""

    ticket: Short = 1
