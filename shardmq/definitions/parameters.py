"""Parameters of components in lists and definitions, out and in; the states of shovels."""

from typing import Final

from shardmq.definitions.rows import Row
from shardmq.definitions.schema import ParameterItem, as_table
from shardmq.errors import InvalidRequest
from shardmq.topology.commands import PutParameter
from shardmq.topology.entities import Parameter
from shardmq.topology.parameters.shovel import SHOVEL, end_facts, read_shovel
from shardmq.topology.topology import Topology

NO_STATE: Final = {"state": "starting", "moved": 0, "error": "", "since": 0.0}
"""What is known of a shovel of which nothing was reported."""


def parameter_row(parameter: Parameter) -> Row:
    """The row of a parameter, whose value may have passwords in it."""
    return {**exported_parameter(parameter), "generation": parameter.generation, "progress": parameter.progress}


def exported_parameter(parameter: Parameter) -> Row:
    """A parameter in RabbitMQ's definitions."""
    return {
        "component": parameter.component,
        "name": parameter.name,
        "vhost": parameter.vhost,
        "value": parameter.value,
    }


def shovel_rows(topology: Topology) -> list[Row]:
    """All shovels with their states, without user names and passwords of URIs."""
    states = {(row["vhost"], row["name"], row["generation"]): row for row in topology.parameters.shovels}
    rows = []
    for each in topology.parameters:
        if each.component == SHOVEL:
            found = states.get((each.vhost, each.name, each.generation), NO_STATE)
            try:
                settings = read_shovel(each.name, each.value)
            except InvalidRequest as fault:  # of another version, or of a backup that somebody has changed
                text = f"its settings cannot be read: {fault.text}; set it anew, or delete it"
                found = {**NO_STATE, "state": "terminated", "error": text}
                facts: Row = {"src_uri": "", "dest_uri": ""}
            else:
                facts = {**end_facts("src", settings.source), **end_facts("dest", settings.destination)}
            rows.append({"name": each.name, "vhost": each.vhost, **{name: found[name] for name in NO_STATE}, **facts})
    return rows


def put_parameter(topology: Topology, item: ParameterItem, vhost: str, skipped: list[str]) -> PutParameter | None:
    """The command for a parameter of definitions; None where it is there already, or means nothing here.

    Args:
        topology: as it is.
        item: the parameter.
        vhost: the virtual host where it names none.
        skipped: gets a sentence where it is left out.
    """
    vhost = item.vhost or vhost
    thing = f"{item.component} '{item.name}' in vhost '{vhost}'"
    if item.component != SHOVEL:
        skipped.append(f"{thing}: there are no parameters of that component here")
        return None
    value = as_table(item.value)
    try:
        read_shovel(item.name, value)
    except InvalidRequest as fault:
        skipped.append(f"{thing}: {fault.text}")
        return None
    there = topology.parameters.get(vhost, item.component, item.name)
    same = there is not None and there.value == value
    return None if same else PutParameter(vhost, item.component, item.name, value)
