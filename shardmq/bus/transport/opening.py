"""Which socket an address gets: one of libzmq over TCP, one of this process's own over ipc."""

import zmq

from shardmq.bus.address import is_tcp
from shardmq.bus.curve import Context, CurveGuard
from shardmq.bus.transport.libzmq import ZmqDealer, ZmqRouter
from shardmq.bus.transport.transport import Dealer, Router
from shardmq.bus.transport.unix_dealer import UnixDealer
from shardmq.bus.transport.unix_router import UnixRouter


def open_dealer(
    context: "zmq.Context[zmq.Socket[bytes]]", address: str, identity: bytes, peer: str
) -> tuple[Dealer, bool]:
    """Make the dialing end of a link.

    Args:
        context: of the process.
        address: of the listener; "" for one over TCP that is still to be named.
        identity: of the socket.
        peer: the listener's name.

    Returns:
        The socket, and whether it talks to the holder of the peer's key only.

    Raises:
        StartupRefused: the address is invalid, or not safe to use.
    """
    if not address or is_tcp(address):
        dealer = ZmqDealer(context, address, identity, peer)
        return dealer, dealer.guard is not None
    own = UnixDealer(address, identity)
    _keep(context, own)
    return own, False


def open_router(context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> tuple[Router, CurveGuard | None]:
    """Make the listening end of links, and the guard that knows who may call; None where none is needed.

    Raises:
        StartupRefused: the address is invalid, not safe to use, or in use.
    """
    if is_tcp(address):
        router = ZmqRouter(context, address)
        return router, router.guard
    own = UnixRouter(address)
    _keep(context, own)
    return own, None


def _keep(context: "zmq.Context[zmq.Socket[bytes]]", socket: UnixDealer | UnixRouter) -> None:
    if isinstance(context, Context):
        context.own_sockets = (*context.own_sockets, socket)
