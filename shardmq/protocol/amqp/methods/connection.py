"""Classes connection, channel and access."""

from typing import ClassVar

from shardmq.protocol.amqp.methods.fields import Arguments, Bit, Long, LongStr, Method, Octet, Short, ShortStr


class ConnectionStart(Method, frozen=True):
    id: ClassVar = (10, 10)
    name: ClassVar = "connection.start"
    version_major: Octet
    version_minor: Octet
    server_properties: Arguments
    mechanisms: LongStr
    locales: LongStr


class ConnectionStartOk(Method, frozen=True):
    id: ClassVar = (10, 11)
    name: ClassVar = "connection.start-ok"
    client_properties: Arguments
    mechanism: ShortStr
    response: LongStr
    locale: ShortStr


class ConnectionSecure(Method, frozen=True):
    id: ClassVar = (10, 20)
    name: ClassVar = "connection.secure"
    challenge: LongStr


class ConnectionSecureOk(Method, frozen=True):
    id: ClassVar = (10, 21)
    name: ClassVar = "connection.secure-ok"
    response: LongStr


class ConnectionTune(Method, frozen=True):
    id: ClassVar = (10, 30)
    name: ClassVar = "connection.tune"
    channel_max: Short
    frame_max: Long
    heartbeat: Short


class ConnectionTuneOk(Method, frozen=True):
    id: ClassVar = (10, 31)
    name: ClassVar = "connection.tune-ok"
    channel_max: Short
    frame_max: Long
    heartbeat: Short


class ConnectionOpen(Method, frozen=True):
    id: ClassVar = (10, 40)
    name: ClassVar = "connection.open"
    virtual_host: ShortStr
    capabilities: ShortStr = ""
    insist: Bit = False


class ConnectionOpenOk(Method, frozen=True):
    id: ClassVar = (10, 41)
    name: ClassVar = "connection.open-ok"
    known_hosts: ShortStr = ""


class ConnectionClose(Method, frozen=True):
    id: ClassVar = (10, 50)
    name: ClassVar = "connection.close"
    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


class ConnectionCloseOk(Method, frozen=True):
    id: ClassVar = (10, 51)
    name: ClassVar = "connection.close-ok"


class ConnectionBlocked(Method, frozen=True):
    id: ClassVar = (10, 60)
    name: ClassVar = "connection.blocked"
    reason: ShortStr


class ConnectionUnblocked(Method, frozen=True):
    id: ClassVar = (10, 61)
    name: ClassVar = "connection.unblocked"


class ConnectionUpdateSecret(Method, frozen=True):
    id: ClassVar = (10, 70)
    name: ClassVar = "connection.update-secret"
    new_secret: LongStr
    reason: ShortStr


class ConnectionUpdateSecretOk(Method, frozen=True):
    id: ClassVar = (10, 71)
    name: ClassVar = "connection.update-secret-ok"


class ChannelOpen(Method, frozen=True):
    id: ClassVar = (20, 10)
    name: ClassVar = "channel.open"
    out_of_band: ShortStr = ""


class ChannelOpenOk(Method, frozen=True):
    id: ClassVar = (20, 11)
    name: ClassVar = "channel.open-ok"
    channel_id: LongStr = b""


class ChannelFlow(Method, frozen=True):
    id: ClassVar = (20, 20)
    name: ClassVar = "channel.flow"
    active: Bit


class ChannelFlowOk(Method, frozen=True):
    id: ClassVar = (20, 21)
    name: ClassVar = "channel.flow-ok"
    active: Bit


class ChannelClose(Method, frozen=True):
    id: ClassVar = (20, 40)
    name: ClassVar = "channel.close"
    reply_code: Short
    reply_text: ShortStr
    class_id: Short
    method_id: Short


class ChannelCloseOk(Method, frozen=True):
    id: ClassVar = (20, 41)
    name: ClassVar = "channel.close-ok"


class AccessRequest(Method, frozen=True):
    id: ClassVar = (30, 10)
    name: ClassVar = "access.request"
    realm: ShortStr
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


class AccessRequestOk(Method, frozen=True):
    id: ClassVar = (30, 11)
    name: ClassVar = "access.request-ok"
    ticket: Short = 1
