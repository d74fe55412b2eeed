"""What commands on parameters of components change, or why they are refused."""

from typing import Any, Final

import msgspec
from msgspec import structs

from shardmq.errors import InvalidRequest, NotAllowed, NotFound
from shardmq.topology.changes import Change, ParameterProgressed, ParameterPut, ParameterRemoved, ShovelsReported
from shardmq.topology.commands import DeleteParameter, PutParameter, ReportShovels
from shardmq.topology.entities import Parameter, check_name
from shardmq.topology.parameters.shovel import SHOVEL, ShovelProgress, read_shovel
from shardmq.topology.topology import Topology

PARAMETERS_MAX: Final = 1000
"""Parameters of the broker: every gateway knows them all, and a shovel has two connections."""

VALUE_BYTES_MAX: Final = 64 << 10
"""Bytes of a parameter's value: every gateway knows it."""


class _Reported(msgspec.Struct):
    """What is reported of a shovel, and every gateway lists."""

    vhost: str
    name: str
    generation: int
    state: str
    moved: int
    error: str
    since: float
    progress: dict[str, Any] = {}


def put_parameter(topology: Topology, command: PutParameter) -> list[Change]:
    """Add a parameter, change one, or have its component begin anew."""
    vhost, component, name = command.vhost, command.component, command.name
    there = topology.parameters.get(vhost, component, name)
    if command.value is None:
        if there is None:
            raise _missing(component, name, vhost)
        value = there.value
    else:
        value = command.value
        check_name(component, name)
        if component != SHOVEL:
            raise InvalidRequest(f"there is no component '{component}' with parameters; there is {SHOVEL}")
        read_shovel(name, value)
        if len(msgspec.msgpack.encode(value)) > VALUE_BYTES_MAX:
            raise InvalidRequest(f"the value of {component} '{name}' is over {VALUE_BYTES_MAX} bytes; make it shorter")
        if there is None and len(topology.parameters) >= PARAMETERS_MAX:
            raise NotAllowed(
                f"cannot add {component} '{name}': there are {PARAMETERS_MAX}, which is the limit; delete some"
            )
    generation = max(command.at_ms, 1 if there is None else there.generation + 1)
    return [ParameterPut(Parameter(vhost, component, name, value, generation))]


def delete_parameter(topology: Topology, command: DeleteParameter) -> list[Change]:
    """Delete a parameter, unless it was set again since."""
    there = topology.parameters.get(command.vhost, command.component, command.name)
    if there is None:
        raise _missing(command.component, command.name, command.vhost)
    if command.generation not in (0, there.generation):
        return []
    return [ParameterRemoved(command.vhost, command.component, command.name)]


def report_shovels(topology: Topology, command: ReportShovels) -> list[Change]:
    """Tell everybody the states of shovels. Of that, how far they are is kept on disk, where they end after some."""
    try:
        msgspec.convert(command.rows, list[_Reported])
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"the states of shovels: {fault}") from None
    changes: list[Change] = [ShovelsReported(command.rows)] if command.rows != topology.parameters.shovels else []
    for row in command.rows:
        there = topology.parameters.get(row.get("vhost", ""), SHOVEL, row.get("name", ""))
        told = row.get("progress")
        if told and there is not None and row.get("generation") == there.generation and told != there.progress:
            changes += _progressed(there, told)
    return changes


def _progressed(there: Parameter, told: Any) -> list[Change]:
    """How far a shovel is; nothing where an earlier one of its processes says so, late."""
    try:
        progress = msgspec.convert(told, ShovelProgress)
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"the progress of shovel '{there.name}' in vhost '{there.vhost}': {fault}") from None
    if there.progress and progress.left > there.progress["left"]:
        return []
    return [ParameterProgressed(structs.replace(there, progress=structs.asdict(progress)))]


def of_vhost(topology: Topology, vhost: str) -> list[Change]:
    """Delete the parameters of a virtual host that is being deleted."""
    return [ParameterRemoved(vhost, each.component, each.name) for each in topology.parameters if each.vhost == vhost]


def _missing(component: str, name: str, vhost: str) -> NotFound:
    return NotFound(f"no {component} '{name}' in vhost '{vhost}'")
