"""`shardmq context`: add, list, show, select, previous, remove, validate."""

import os
import re
import sys
from typing import Any, Final
from urllib.parse import urlunsplit

import click

from shardmq.client.api.url import DEFAULT_URL, URL_VARIABLE, parse, parse_all
from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.contexts import Context, Contexts, load, save
from shardmq.cmd.terminal.options import JSON, LIST, TLS_FILES, BrokerUrl
from shardmq.cmd.terminal.output import CommandFailed, print_done, print_json, warn
from shardmq.cmd.terminal.rows import Column, RowChoice, names
from shardmq.cmd.terminal.tables import print_facts, print_list
from shardmq.errors import InvalidRequest
from shardmq.urls import split_url

COLUMNS: Final = (Column("selected", lambda row: "*" if row["selected"] else ""), *names("name", "url", "description"))

NAME: Final = re.compile(r"[\w.@-]{1,100}")


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    try:
        return sorted(name for name in load().all if name.startswith(incomplete))
    except CommandFailed:
        return []


EXISTING: Final = click.argument("name", shell_complete=_complete)
PERHAPS: Final = click.argument("name", required=False, shell_complete=_complete)


@click.group()
def context() -> None:
    """Named brokers: add, list, show, select, previous, remove, validate.

    Commands use the selected one where neither --url nor SHARDMQ_URL says which.
    """


@context.command("add")
@click.argument("name")
@click.argument("url")
@click.option("--description", default="", help="For people.")
@click.option("--select", "is_selected", is_flag=True, help="Have commands use it; the first one is used anyway.")
@click.option("--replace", "is_replaced", is_flag=True, help="Change the one of this name.")
@TLS_FILES
@JSON
def context_add(*, name: str, url: str, description: str, is_selected: bool, is_replaced: bool, as_json: bool) -> None:
    """Keep URL under NAME, with its user and password. "-" reads the URL from stdin, out of the shell's memory."""
    if not NAME.fullmatch(name):
        raise click.BadParameter(f"'{name}' is no name: 100 letters, digits, '.', '@', '_' and '-' at most")
    if url == "-":
        url = sys.stdin.readline().strip()
    url = BrokerUrl().convert(url, None, click.get_current_context())
    found = load()
    if name in found.all and not is_replaced:
        raise CommandFailed(f"there is a context '{name}' already; --replace changes it")
    found.all[name] = Context(url, description)
    if is_selected or len(found.all) == 1:
        found.select(name)
    save(found)
    print_done(
        f"Added context '{name}'{', which is selected' if found.selected == name else ''}", as_json, context=name
    )


@context.command("list")
@LIST
def context_list(*, choice: RowChoice, as_json: bool) -> None:
    """Show all contexts, without their passwords."""
    found = load()
    print_list("contexts", [_row(found, name) for name in sorted(found.all)], COLUMNS, choice, as_json)


@context.command("show")
@PERHAPS
@click.option("--password", "has_password", is_flag=True, help="With the password.")
@JSON
def context_show(*, name: str | None, has_password: bool, as_json: bool) -> None:
    """Show context NAME, otherwise the selected one."""
    found = load()
    name = _given_or_selected(found, name)
    row = _row(found, name)
    if has_password:
        row["url"] = found.all[name].url
    if as_json:
        print_json(row)
        return
    address = parse(found.all[name].url)
    print_facts(
        f"context {name}",
        {
            "url": row["url"],
            "user": address.user or "named by the certificate",
            "virtual host": address.vhost,
            "description": row["description"],
            "selected": "yes" if row["selected"] else "no",
        },
    )


@context.command("select")
@EXISTING
@JSON
def context_select(*, name: str, as_json: bool) -> None:
    """Have commands use context NAME."""
    found = load()
    found.select(name)
    save(found)
    _say_selected(name, as_json)


@context.command("previous")
@JSON
def context_previous(*, as_json: bool) -> None:
    """Have commands use the context that was selected before; twice is where you were."""
    found = load()
    if found.previous is None:
        raise CommandFailed("no other context was selected before; `shardmq context select` selects one")
    name = found.previous
    found.select(name)
    save(found)
    _say_selected(name, as_json)


@context.command("remove")
@EXISTING
@JSON
def context_remove(*, name: str, as_json: bool) -> None:
    """Forget context NAME and its password."""
    found = load()
    found.remove(name)
    save(found)
    print_done(f"Removed context '{name}'", as_json, context=name)


@context.command("validate")
@PERHAPS
@JSON
def context_validate(*, name: str | None, as_json: bool) -> None:
    """Log in to the broker of context NAME, otherwise of the selected one."""
    found = load()
    name = _given_or_selected(found, name)
    url = found.all[name].url
    try:
        addresses = parse_all(url)
    except InvalidRequest as fault:
        raise CommandFailed(f"context '{name}' cannot be used: {fault.text}") from fault
    with connected(url) as connection:
        version = str(connection.server_properties.get("version", ""))
    user = addresses[0].user or "the certificate's user"
    sentence = f"Context '{name}': logged in as {user} to virtual host '{addresses[0].vhost}' of shardmq {version}"
    print_done(sentence.rstrip(), as_json, context=name, user=user, vhost=addresses[0].vhost, version=version)


def _row(found: Contexts, name: str) -> dict[str, Any]:
    kept = found.all[name]
    return {
        "name": name,
        "url": _without_password(kept.url),
        "description": kept.description,
        "selected": name == found.selected,
    }


def _without_password(url: str) -> str:
    parts = split_url(url)
    who, at, hosts = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    return urlunsplit(parts._replace(netloc=f"{user}{':…' if colon else ''}{at}{hosts}"))


def _given_or_selected(found: Contexts, name: str | None) -> str:
    name = found.selected if name is None else name
    if name is None:
        raise CommandFailed(f"no context is selected, so commands use {DEFAULT_URL}; name one, or add one")
    found.named(name)
    return name


def _say_selected(name: str, as_json: bool) -> None:
    print_done(f"Selected context '{name}'", as_json, context=name)
    if os.environ.get(URL_VARIABLE):
        warn(f"{URL_VARIABLE} is set, and wins over it")
