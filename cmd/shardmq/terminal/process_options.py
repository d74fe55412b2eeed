"""Options of the broker's processes: data directory, keys of the bus, watermarks, TLS. Each is declared here, once."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import ByteCount, Command, MemoryAmount, MessageSize, all_of
from shardmq.runtime.logs import FORMATS, LEVELS, LogOptions

if TYPE_CHECKING:
    from shardmq.runtime.tls import TlsOptions


def _http_url(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no URL of HTTP."""
    if value is not None and not (value.startswith(("http://", "https://")) and value.partition("//")[2]):
        raise click.BadParameter(f"'{value}' is no http:// or https:// URL, as http://127.0.0.1:4318", param=option)
    return value or None


DATA_DIR: Final = click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("shardmq-data"),
    envvar="SHARDMQ_DATA_DIR",
    show_envvar=True,
    show_default=True,
    help="Directory of the stores; each process has its own folder in it.",
)
SHARDS: Final = click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="ADDRESS",
    envvar="SHARDMQ_SHARDS",
    show_envvar=True,
    help="Address of shard 0, then of shard 1, …: one option for each (in the environment separated by spaces).",
)
KEYS: Final = click.option(
    "--keys",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="SHARDMQ_KEYS",
    show_envvar=True,
    help="Folder of keys (`shardmq keys create`); tcp:// addresses need it.",
)
INSECURE_BUS: Final = click.option(
    "--insecure-bus",
    is_flag=True,
    envvar="SHARDMQ_INSECURE_BUS",
    show_envvar=True,
    help="Allow tcp:// addresses of this machine's loopback without keys: all its users can then read all messages.",
)
DISK_FREE_LIMIT: Final = click.option(
    "--disk-free-limit",
    type=ByteCount(),
    metavar="BYTES",
    envvar="SHARDMQ_DISK_FREE_LIMIT",
    show_envvar=True,
    help="Publishers are blocked while the disk has less left, as 1GiB.  [default: 512MiB, 50MiB of a disk below 5GiB]",
)
DEFINITIONS: Final = click.option(
    "--definitions",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE|FOLDER",
    envvar="SHARDMQ_DEFINITIONS",
    show_envvar=True,
    help="Definitions to import at the start, RabbitMQ's JSON: a file, or a folder of *.json; not again unchanged.",
)
MESSAGE_SIZE_MAX: Final = click.option(
    "--message-size-max",
    type=MessageSize(),
    default="16MiB",
    metavar="BYTES",
    envvar="SHARDMQ_MESSAGE_SIZE_MAX",
    show_envvar=True,
    show_default=True,
    help="The largest message that is taken, properties not counted; up to 512MiB. Each one under way takes a few "
    "times as much memory.",
)

OTLP_ENDPOINT: Final = click.option(
    "--otlp-endpoint",
    metavar="URL",
    envvar="SHARDMQ_OTLP_ENDPOINT",
    show_envvar=True,
    callback=_http_url,
    help="Send OpenTelemetry spans of messages whose traceparent is sampled to this receiver of OTLP over HTTP, as "
    "http://127.0.0.1:4318. Needs shardmq[otel].",
)


def memory_watermark(of: str, default: str, envvar: str) -> Callable[[Command], Command]:
    """The option for memory: of one process, or of all that `up` runs."""
    return click.option(
        "--memory-watermark",
        type=MemoryAmount(),
        metavar="SHARE|BYTES",
        envvar=envvar,
        show_envvar=True,
        help=f"Publishers are blocked while {of} more memory: a share of the machine's as 0.4, or bytes as 2GiB.  "
        f"[default: {default}]",
    )


def bus_options(command: Command) -> Command:
    """The options of a process that speaks on the bus."""
    return KEYS(INSECURE_BUS(command))


_LOG_OPTIONS: Final = (
    click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        envvar="SHARDMQ_LOG_LEVEL",
        show_envvar=True,
        show_default=True,
        help="The least that is logged, to stderr.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(FORMATS),
        default="text",
        envvar="SHARDMQ_LOG_FORMAT",
        show_envvar=True,
        show_default=True,
        help="Lines for people, or JSON objects with time, level, process and text.",
    ),
)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the log. The command gets them as `log`, a `LogOptions`."""

    @functools.wraps(command)
    def with_log(*, log_level: str, log_format: str, **values: Any) -> Any:
        return command(log=LogOptions(log_level, log_format), **values)

    return all_of(with_log, _LOG_OPTIONS)


DEFAULT_MANAGEMENT_PORT: Final = 15_672
"""RabbitMQ's."""


PORT_MAX: Final = 65_535


class PortOrOff(click.ParamType[int | None]):
    """A TCP port, or "off", which is None."""

    name = "port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """The port."""
        if value is None or value == "off":
            return None
        if not str(value).isdecimal() or len(value) > len(str(PORT_MAX)) or int(value) > PORT_MAX:
            self.fail(f"'{value}' is no port; give a number from 0 to {PORT_MAX}, or off", param, ctx)
        return int(value)


_MANAGEMENT_OPTIONS: Final = (
    click.option(
        "--management-host",
        default="127.0.0.1",
        show_default=True,
        envvar="SHARDMQ_MANAGEMENT_HOST",
        show_envvar=True,
        help="Address for browsers and other clients of the HTTP API.",
    ),
    click.option(
        "--management-port",
        type=PortOrOff(),
        default=str(DEFAULT_MANAGEMENT_PORT),
        show_default=True,
        metavar="PORT|off",
        envvar="SHARDMQ_MANAGEMENT_PORT",
        show_envvar=True,
        help="Port for them; 0 takes a free one.",
    ),
    click.option(
        "--management-tls-cert",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="SHARDMQ_MANAGEMENT_TLS_CERT",
        show_envvar=True,
        help="A certificate to speak HTTPS there, and those between it and its authority (PEM).",
    ),
    click.option(
        "--management-tls-key",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="SHARDMQ_MANAGEMENT_TLS_KEY",
        show_envvar=True,
        help="Its private key (PEM).",
    ),
    click.option(
        "--metrics-host",
        default="127.0.0.1",
        show_default=True,
        envvar="SHARDMQ_METRICS_HOST",
        show_envvar=True,
        help="Address for Prometheus.",
    ),
    click.option(
        "--metrics-port",
        type=PortOrOff(),
        default="off",
        show_default=True,
        metavar="PORT|off",
        envvar="SHARDMQ_METRICS_PORT",
        show_envvar=True,
        help="One more port of the management process, for Prometheus alone and without a login; RabbitMQ's is 15692.",
    ),
)


@dataclass(frozen=True, slots=True)
class ManagementChoice:
    """What the options for management say.

    Attributes:
        host: address to listen on.
        port: TCP port; None for no management process.
        certificate: file for HTTPS; None for HTTP.
        key: its private key.
        is_default: whether nobody chose the port.
        metrics_host: address for scrapes.
        metrics_port: TCP port for scrapes alone; None for none.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    certificate: Path | None = None
    key: Path | None = None
    is_default: bool = False
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The same as words of another command line."""
        words: tuple[str, ...] = (
            "--management-host",
            self.host,
            "--management-port",
            "off" if self.port is None else str(self.port),
        )
        if self.metrics_port is not None:
            words = (*words, "--metrics-host", self.metrics_host, "--metrics-port", str(self.metrics_port))
        if self.certificate is None:
            return words
        return *words, "--management-tls-cert", str(self.certificate), "--management-tls-key", str(self.key)


NO_MANAGEMENT: Final = ManagementChoice()
"""No management process."""


def management_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the management process. The command gets them as `management`: a `ManagementChoice`."""

    @functools.wraps(command)
    def with_management(
        *,
        management_host: str,
        management_port: int | None,
        management_tls_cert: Path | None,
        management_tls_key: Path | None,
        metrics_host: str,
        metrics_port: int | None,
        **values: Any,
    ) -> Any:
        if (management_tls_cert is None) != (management_tls_key is None):
            raise click.UsageError("--management-tls-cert and --management-tls-key need each other")
        if management_port is None and metrics_port is not None:
            raise click.UsageError("--metrics-port is a port of the management process; --management-port is off")
        source = click.get_current_context().get_parameter_source("management_port")
        choice = ManagementChoice(
            management_host,
            management_port,
            management_tls_cert,
            management_tls_key,
            source is ParameterSource.DEFAULT,
            metrics_host,
            metrics_port,
        )
        return command(management=choice, **values)

    return all_of(with_management, _MANAGEMENT_OPTIONS)


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_TLS_OPTIONS: Final = (
    click.option(
        "--tls-host",
        envvar="SHARDMQ_TLS_HOST",
        show_envvar=True,
        help="Address for clients with TLS, as 0.0.0.0 for the world.  [default: that of --host]",
    ),
    click.option(
        "--tls-port",
        type=WholeNumber(1, 65_535),
        envvar="SHARDMQ_TLS_PORT",
        show_envvar=True,
        help="One more port for clients, with TLS (5671 is usual); needs --tls-cert and --tls-key.",
    ),
    click.option(
        "--tls-cert",
        type=_FILE,
        envvar="SHARDMQ_TLS_CERT",
        show_envvar=True,
        help="The server's certificate, and those between it and its authority (PEM).",
    ),
    click.option("--tls-key", type=_FILE, envvar="SHARDMQ_TLS_KEY", show_envvar=True, help="Its private key (PEM)."),
    click.option(
        "--tls-ca",
        type=_FILE,
        envvar="SHARDMQ_TLS_CA",
        show_envvar=True,
        help="Authorities that clients' certificates are verified by (PEM); AMQP's EXTERNAL logs in by these.",
    ),
    click.option(
        "--tls-verify",
        is_flag=True,
        envvar="SHARDMQ_TLS_VERIFY",
        show_envvar=True,
        help="Refuse clients without a certificate of those authorities.",
    ),
    click.option(
        "--no-plain",
        is_flag=True,
        envvar="SHARDMQ_NO_PLAIN",
        show_envvar=True,
        help="No port without TLS: --tls-port is the only one.",
    ),
)


def tls_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options for TLS on a port for clients. The command gets them as `tls`: `TlsOptions`, or None."""

    @functools.wraps(command)
    def with_tls(**values: Any) -> Any:
        given = {name: values.pop(name) for name in _TLS_NAMES}
        return command(tls=tls_of(given), **values)

    return all_of(with_tls, _TLS_OPTIONS)


_TLS_NAMES: Final = ("tls_host", "tls_port", "tls_cert", "tls_key", "tls_ca", "tls_verify", "no_plain")


def tls_of(given: dict[str, Any]) -> "TlsOptions | None":
    """What the options for TLS say together.

    Args:
        given: the options' values, by parameter name; None, False or absent where one was not given.

    Raises:
        UsageError: a part of them is missing.
    """
    host, port, certificate, key, authorities, verify, alone = (given.get(name) for name in _TLS_NAMES)
    if port is None:
        if alone:
            raise click.UsageError("--no-plain leaves no port for clients; give --tls-port, --tls-cert and --tls-key")
        context = click.get_current_context(silent=True)
        named = [name for name in _TLS_NAMES if given.get(name)]
        # In the environment they may be there for clients.
        if any(context is None or context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in named):
            raise click.UsageError("the options for TLS mean nothing without --tls-port")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-port needs --tls-cert and --tls-key")
    if verify and authorities is None:
        raise click.UsageError("--tls-verify needs --tls-ca, the authorities to verify by")
    from shardmq.runtime.tls import TlsOptions

    return TlsOptions(port, certificate, key, authorities, bool(verify), host, bool(alone))


def tls_words(tls: "TlsOptions | None") -> tuple[str, ...]:
    """The options for TLS as words of another command line."""
    if tls is None:
        return ()
    words = ["--tls-port", str(tls.port), "--tls-cert", str(tls.certificate), "--tls-key", str(tls.key)]
    words += [] if tls.ca is None else ["--tls-ca", str(tls.ca)]
    words += ["--tls-verify"] if tls.verify_client else []
    words += [] if tls.host is None else ["--tls-host", tls.host]
    words += ["--no-plain"] if tls.is_alone else []
    return tuple(words)
