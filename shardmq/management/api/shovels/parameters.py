"""Parameters of components: shovels, their states, and having them begin anew."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Handler, Right, put
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed
from shardmq.message.json_values import plain
from shardmq.topology.parameters.shovel import SHOVEL


def parameter_row(row: Row) -> Row:
    """A parameter, in RabbitMQ's words."""
    return {**{name: row[name] for name in ("component", "vhost", "name")}, "value": plain(row["value"])}


def shovel_row(row: Row, node: str) -> Row:
    """The state of a shovel, in RabbitMQ's words, and since when it is in that (ms since 1970)."""
    shown = {name: value for name, value in row.items() if name not in ("error", "since")}
    since = {"since": round(row["since"] * 1000)} if row["since"] else {}
    reason = {"reason": row["error"]} if row["error"] else {}
    return {"node": node, "type": "dynamic", **shown, **since, **reason}


async def _parameters(call: Call, vhost: str | None = None, component: str | None = None) -> list[Row]:
    rows = await call.rows("parameters", vhost)
    return [row for row in rows if component in (None, row["component"])]


async def everywhere(call: Call) -> Answer:
    """All parameters."""
    return Answer(listed([parameter_row(row) for row in await _parameters(call)], call.query))


async def of_component(call: Call) -> Answer:
    """The parameters of a component."""
    rows = await _parameters(call, component=call.part("component"))
    return Answer(listed([parameter_row(row) for row in rows], call.query))


async def of_vhost(call: Call) -> Answer:
    """The parameters of a component in a virtual host."""
    rows = await _parameters(call, await call.vhost(), call.part("component"))
    return Answer(listed([parameter_row(row) for row in rows], call.query))


async def _find(call: Call, component: str) -> Row:
    vhost, name = await call.vhost(), call.part("name")
    for row in await _parameters(call, vhost, component):
        if row["name"] == name:
            return row
    raise ApiError.not_found(f"no {component} '{name}' in vhost '{vhost}'")


async def one(call: Call) -> Answer:
    """A parameter."""
    return Answer(parameter_row(await _find(call, call.part("component"))))


async def write(call: Call) -> Answer:
    """Set a parameter."""
    vhost, component, name = await call.vhost(), call.part("component"), call.part("name")
    body = await call.body()
    value = body.get("value")
    if not isinstance(value, dict):
        raise ApiError.bad_request("key_missing: value" if value is None else "the value is no object")
    is_new = all(row["name"] != name for row in await _parameters(call, vhost, component))
    await (await call.caller.administration()).parameter_put(vhost, component, name, value)
    return put(is_new)


async def _delete(call: Call, component: str) -> Answer:
    found = await _find(call, component)
    await (await call.caller.administration()).parameter_delete(found["vhost"], component, found["name"])
    return NO_CONTENT


async def delete(call: Call) -> Answer:
    """Delete a parameter."""
    return await _delete(call, call.part("component"))


async def _shovels(call: Call, vhost: str | None = None) -> list[Row]:
    return [shovel_row(row, call.facts.node) for row in await call.rows("shovels", vhost)]


async def shovels(call: Call) -> Answer:
    """The states of all shovels."""
    return Answer(listed(await _shovels(call), call.query))


async def shovels_of_vhost(call: Call) -> Answer:
    """The states of the shovels of a virtual host."""
    return Answer(listed(await _shovels(call, await call.vhost()), call.query))


async def shovel(call: Call) -> Answer:
    """The state of a shovel."""
    vhost, name = await call.vhost(), call.part("name")
    for row in await _shovels(call, vhost):
        if row["name"] == name:
            return Answer(row)
    raise ApiError.not_found(f"no {SHOVEL} '{name}' in vhost '{vhost}'")


async def delete_shovel(call: Call) -> Answer:
    """Delete a shovel."""
    return await _delete(call, SHOVEL)


async def restart_shovel(call: Call) -> Answer:
    """Have a shovel begin anew."""
    found = await _find(call, SHOVEL)
    await (await call.caller.administration()).parameter_put(found["vhost"], SHOVEL, found["name"], None)
    return NO_CONTENT


def _list(path: str, handler: Handler, right: Right, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, right, summary, list[Row], is_list=True)


PARAMETER: Final = "/parameters/{component}/{vhost}/{name}"
SHOVEL_PATH: Final = "/shovels/vhost/{vhost}/{name}"
_RIGHT: Final = Right.POLICYMAKER

ENDPOINTS: Final = (
    _list("/parameters", everywhere, _RIGHT, "All parameters of components."),
    _list("/parameters/{component}", of_component, _RIGHT, "The parameters of a component."),
    _list("/parameters/{component}/{vhost}", of_vhost, _RIGHT, "Those of a component in a virtual host."),
    Endpoint("GET", PARAMETER, one, _RIGHT, "A parameter.", Row),
    Endpoint("PUT", PARAMETER, write, _RIGHT, "Set a parameter.", None, Row),
    Endpoint("DELETE", PARAMETER, delete, _RIGHT, "Delete a parameter."),
    _list("/shovels", shovels, Right.MANAGEMENT, "The states of all shovels."),
    _list("/shovels/{vhost}", shovels_of_vhost, Right.MANAGEMENT, "The states of the shovels of a virtual host."),
    Endpoint("GET", SHOVEL_PATH, shovel, Right.MANAGEMENT, "The state of a shovel.", Row),
    Endpoint("DELETE", SHOVEL_PATH, delete_shovel, _RIGHT, "Delete a shovel."),
    Endpoint("DELETE", f"{SHOVEL_PATH}/restart", restart_shovel, _RIGHT, "Have a shovel begin anew."),
)
"""What this file answers."""
