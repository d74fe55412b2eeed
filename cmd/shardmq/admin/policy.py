"""`shardmq policy`: list, set, delete, match, preview; operator policies with --operator."""

from typing import Any, Final

import click

from shardmq.cmd.admin.permission import VHOST, named_vhost
from shardmq.cmd.terminal.completion import completing
from shardmq.cmd.terminal.connection import carry_out, connected, rows_of
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import BROKER, JSON, LIST, all_of, named_values
from shardmq.cmd.terminal.output import CommandFailed
from shardmq.cmd.terminal.rows import Column, Row, RowChoice, extras, names
from shardmq.cmd.terminal.tables import print_list
from shardmq.topology.policies.keys import APPLY_TO

COLUMNS: Final = (
    *names("name", "vhost", "pattern", "apply_to"),
    Column("definition", is_wrapped=True),
    Column("priority", is_number=True),
    *extras("operator"),
)

MATCHED: Final = (Column("applies"), Column("operator"), *COLUMNS[:-1])


def _difference(row: Row) -> str:
    return ", ".join(f"{name} {_word(before)} → {_word(after)}" for name, (before, after) in row["changes"].items())


def _word(value: Any) -> str:
    return "none" if value is None else str(value)


PREVIEWED: Final = (
    *names("kind", "name"),
    Column("changes", value=_difference, is_wrapped=True),
    *names("policy", "operator_policy"),
    *extras("policy_before", "operator_policy_before"),
)

OPERATOR: Final = click.option("--operator", is_flag=True, help="An operator policy: a limit that no policy passes.")
_SETTINGS: Final = (
    click.option(
        "--priority", type=WholeNumber(), default=0, show_default=True, help="The highest that matches applies."
    ),
    click.option("--apply-to", type=click.Choice(APPLY_TO), default="all", show_default=True, help="What it is for."),
    OPERATOR,
    VHOST,
)
_DEFINITION: Final = click.argument("definition", nargs=-1, metavar="NAME=VALUE…", callback=named_values)


@click.group(short_help="Policies: list, set, delete, match, preview.")
def policy() -> None:
    """Policies, the settings of all queues and exchanges whose names match: list, set, delete, match, preview."""


@policy.command("list")
@click.option("--operator", is_flag=True, help="Operator policies.")
@click.option("--vhost", "-p", metavar="NAME", shell_complete=completing("vhosts"), help="Only of this virtual host.")
@BROKER
@LIST
def policy_list(*, operator: bool, vhost: str | None, url: str, choice: RowChoice, as_json: bool) -> None:
    """Show policies, those that come before others first."""
    found = rows_of(url, "policies")
    rows = [row for row in found if vhost in (None, row["vhost"]) and row["operator"] is operator]
    print_list("operator policies" if operator else "policies", rows, COLUMNS, choice, as_json)


@policy.command("set", short_help="Give all queues and exchanges with PATTERN in their names settings.")
@click.argument("name")
@click.argument("pattern")
@_DEFINITION
@lambda command: all_of(command, _SETTINGS)
@BROKER
@JSON
def policy_set(
    *,
    name: str,
    pattern: str,
    definition: dict[str, Any],
    priority: int,
    apply_to: str,
    operator: bool,
    vhost: str | None,
    url: str,
    as_json: bool,
) -> None:
    """Make policy NAME, or change it: all queues and exchanges with PATTERN in their names get these settings.

    PATTERN is a regular expression, as '^orders[.]'; settings are as max-length=1000 or dead-letter-exchange=dead. It
    applies to what there is at once, and to what comes. `policy preview` says before what it would change.
    """
    place = named_vhost(vhost, url)
    settings = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to}
    carry_out(
        url,
        as_json,
        f"Set {_title(name, operator)} in virtual host '{place}'",
        lambda connection: connection.policy_put(place, name, settings, operator),
    )


@policy.command("delete")
@click.argument("name", shell_complete=completing("policies"))
@OPERATOR
@VHOST
@BROKER
@JSON
def policy_delete(*, name: str, operator: bool, vhost: str | None, url: str, as_json: bool) -> None:
    """Remove policy NAME; what it applied to is as the next policy that matches wants it, or as it was declared."""
    place = named_vhost(vhost, url)
    carry_out(
        url,
        as_json,
        f"Deleted {_title(name, operator)} in virtual host '{place}'",
        lambda connection: connection.policy_delete(place, name, operator),
    )


@policy.command("preview", short_help="Say what a policy would change.")
@click.argument("name")
@click.argument("pattern", required=False)
@_DEFINITION
@lambda command: all_of(command, _SETTINGS)
@click.option("--delete", "is_deleted", is_flag=True, help="What deleting it would change.")
@BROKER
@LIST
def policy_preview(
    *,
    name: str,
    pattern: str | None,
    definition: dict[str, Any],
    priority: int,
    apply_to: str,
    operator: bool,
    vhost: str | None,
    is_deleted: bool,
    url: str,
    choice: RowChoice,
    as_json: bool,
) -> None:
    """Say which queues and exchanges policy NAME would match, and what would change for each. Nothing changes."""
    if is_deleted == (pattern is not None):
        raise CommandFailed("give a PATTERN and settings, or --delete; one of them")
    settings = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": apply_to}
    place = named_vhost(vhost, url)
    with connected(url) as connection:
        rows = connection.policy_preview(place, name, None if is_deleted else settings, operator)
    print_list("matches", rows, PREVIEWED, choice, as_json)


@policy.command("match", short_help="Say which policies match NAME.")
@click.argument("name")
@click.option("--exchange", is_flag=True, help="NAME is an exchange's.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(("classic", "quorum", "stream")),
    default="classic",
    show_default=True,
    help="Of the queue, where there is none of that name.",
)
@VHOST
@BROKER
@LIST
def policy_match(
    *, name: str, exchange: bool, kind: Any, vhost: str | None, url: str, choice: RowChoice, as_json: bool
) -> None:
    """Say which policies match the queue NAME, which need not exist; those that apply are the first."""
    place = named_vhost(vhost, url)
    with connected(url) as connection:
        rows = connection.policy_match(place, name, "exchange" if exchange else "queue", kind)
    print_list("policies", rows, MATCHED, choice, as_json)


def _title(name: str, operator: bool) -> str:
    return f"{'operator ' if operator else ''}policy '{name}'"
