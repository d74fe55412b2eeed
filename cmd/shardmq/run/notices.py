"""What the supervisor says: the events of a broker."""

from typing import Final

import msgspec

LEVELS: Final = {
    **dict.fromkeys(("exited", "unmanaged", "waiting"), "warning"),
    **dict.fromkeys(("hung", "killed", "refused"), "error"),
}
"""Log levels of events; all others are info."""


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event of the broker; `text` is for people, the other fields are for programs.

    `event` is one of up, managed, unmanaged, exited, grown, hung, ready, refused, waiting, stopping, killed,
    stopped.
    Without a plain port there are no `host` and `port`; `management` is a URL; `cores` are there where the number of
    gateways was chosen for them.
    """

    event: str
    text: str
    process: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    signal: str | None = None
    seconds: float | None = None
    host: str | None = None
    port: int | None = None
    url: str | None = None
    tls_host: str | None = None
    tls_port: int | None = None
    tls_verify: bool | None = None
    data_dir: str | None = None
    processes: dict[str, int] | None = None
    management: str | None = None
    cores: int | None = None

    @property
    def level(self) -> str:
        """The log level."""
        return LEVELS.get(self.event, "info")
