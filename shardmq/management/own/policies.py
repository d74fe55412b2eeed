"""What a policy would change, before it is set."""

from typing import Final

from shardmq.management.api.policies import settings_in
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Handler, Right
from shardmq.message.json_values import plain


def _preview(is_operator: bool) -> Handler:
    async def preview(call: Call) -> Answer:
        vhost, name, settings = await call.vhost(), call.part("name"), settings_in(await call.body())
        connection = await call.caller.administration()
        rows = await connection.policy_preview(vhost, name, settings, is_operator)
        return Answer([plain(row) for row in rows])

    return preview


ENDPOINTS: Final = tuple(
    Endpoint(
        "POST",
        f"/shardmq/{place}/{{vhost}}/{{name}}/preview",
        _preview(is_operator),
        Right.POLICYMAKER,
        "What setting a policy would change. Nothing changes.",
        list[Row],
        Row,
    )
    for place, is_operator in (("policies", False), ("operator-policies", True))
)
"""What this file answers."""
