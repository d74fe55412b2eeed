"""The `shardmq` program: its list of commands, and how each of them may end."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from shardmq.cmd.terminal.exit_codes import EXIT_CONFIG, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PIPE
from shardmq.cmd.terminal.output import note
from shardmq.errors import ConnectionLost, ShardmqError, StartupRefused

COMMANDS: Final = {
    "up": "shardmq.cmd.run.up:up",
    "status": "shardmq.cmd.admin.status:status",
    "top": "shardmq.cmd.top.command:top",
    "check": "shardmq.cmd.check.command:check",
    "publish": "shardmq.cmd.messages.publish:publish",
    "consume": "shardmq.cmd.messages.consume:consume",
    "tap": "shardmq.cmd.messages.tap:tap",
    "dead-letters": "shardmq.cmd.messages.dead_letters:dead_letters",
    "trace": "shardmq.cmd.messages.trace:trace",
    "exchange": "shardmq.cmd.admin.exchange:exchange",
    "queue": "shardmq.cmd.admin.queue:queue",
    "topic": "shardmq.cmd.topics.topic:topic",
    "binding": "shardmq.cmd.admin.binding:binding",
    "group": "shardmq.cmd.topics.group:group",
    "transaction": "shardmq.cmd.admin.transaction:transaction",
    "user": "shardmq.cmd.admin.user:user",
    "vhost": "shardmq.cmd.admin.vhost:vhost",
    "permission": "shardmq.cmd.admin.permission:permission",
    "policy": "shardmq.cmd.admin.policy:policy",
    "shovel": "shardmq.cmd.messages.shovel:shovel",
    "watermark": "shardmq.cmd.admin.limits:watermark",
    "connection": "shardmq.cmd.admin.connection:connection",
    "channel": "shardmq.cmd.admin.connection:channel",
    "consumer": "shardmq.cmd.admin.connection:consumer",
    "context": "shardmq.cmd.contexts.command:context",
    "definitions": "shardmq.cmd.admin.definitions:definitions",
    "spark": "shardmq.cmd.spark.command:spark",
    "bench": "shardmq.cmd.bench.command:bench",
    "demo": "shardmq.cmd.demo.demo:demo",
    "backup": "shardmq.cmd.store.backup:backup",
    "restore": "shardmq.cmd.store.backup:restore",
    "store": "shardmq.cmd.store.command:store",
    "host": "shardmq.cmd.hosts.host:host",
    "keys": "shardmq.cmd.run.keys:keys",
    "gateway": "shardmq.cmd.run.processes:gateway",
    "shard": "shardmq.cmd.run.processes:shard",
    "coordinator": "shardmq.cmd.run.processes:coordinator",
    "management": "shardmq.cmd.run.management:management",
    "shovels": "shardmq.cmd.run.shovels:shovels",
}
"""Name to module:attribute. Imported when asked for: a role must not carry the memory of commands it never runs."""


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order they are listed above."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; where it names none, the error says which is meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as fault:
            raise click.exceptions.NoSuchCommand(fault.command_name, possibilities=COMMANDS, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command that was named; it ends quietly when whoever read its output has had enough (`| head`)."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would complain again at exit
            return EXIT_PIPE


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="shardmq", prog_name="shardmq")
def cli() -> None:
    """A sharded message broker: RabbitMQ's model, confirms that mean fsync.

    Start with `shardmq up`; it prints what to try next.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; whatever goes wrong ends as one sentence on stderr and an exit code.

    Notes of what went wrong stand above it.

    Args:
        arguments: without the program's name; those of this process when None.

    Returns:
        The exit code.
    """
    try:
        result = cli.main(args=arguments, prog_name="shardmq", standalone_mode=False)
    except click.ClickException as fault:
        fault.show()
        return fault.exit_code
    except StartupRefused as fault:
        return _failed(fault, fault.text, EXIT_CONFIG)
    except ConnectionLost as fault:
        return _failed(fault, f"{fault}; `shardmq up` starts a broker, --url names another", EXIT_FAILED)
    except ShardmqError as fault:
        return _failed(fault, str(fault), EXIT_FAILED)
    except (click.Abort, KeyboardInterrupt) as fault:
        for each in _notes(fault.__cause__ or fault):  # click raises its own where Ctrl-C was pressed
            note(each)
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


def _failed(fault: ShardmqError, sentence: str, code: int) -> int:
    logging = sys.modules.get("logging")
    if logging is not None and logging.getLogger("shardmq").handlers:  # a process of the broker, which has a log
        logging.getLogger("shardmq.cmd").error("%s", "; ".join([sentence, *_notes(fault)]))
        return code
    for each in _notes(fault):
        note(each)
    click.secho(f"Error: {sentence}", fg="red", err=True)  # the last line says why
    return code


def _notes(fault: BaseException) -> list[str]:
    """What was added to an error on its way: what is left behind, and how it is finished."""
    return list(getattr(fault, "__notes__", ()))


def main() -> None:
    """The program's entry point."""
    sys.exit(run())


if __name__ == "__main__":
    main()
