"""What a group's members say of it: its kind, delivery limit, dead letters, tags. All say the same."""

from typing import Final

from shardmq.bus.messages.groups import GroupReading
from shardmq.errors import PreconditionFailed
from shardmq.shards.storage.entries import GroupSettings, common_settings
from shardmq.shards.topics.group_cursor import GroupCursor


def settings_of(message: GroupReading) -> GroupSettings:
    """Return the settings that a member says its group has."""
    begin = message.begin
    return common_settings(
        GroupSettings(
            message.is_shared,
            message.delivery_limit,
            message.dead_letter_exchange,
            message.dead_letter_routing_key,
            tuple(sorted(set(begin.tags))) if begin.tags is not None else None,
            begin.has_untagged,
        )
    )


_SETTINGS: Final = {
    "is_shared": "kind",
    "delivery_limit": "x-delivery-limit",
    "dead_letter_exchange": "x-dead-letter-exchange",
    "dead_letter_routing_key": "x-dead-letter-routing-key",
    "tags": "x-stream-filter",
    "has_untagged": "x-stream-match-unfiltered",
}
"""What errors call a group's settings."""


def check_settings(title: str, group: GroupCursor, settings: GroupSettings) -> None:
    """Make sure that a member says of its group what the first one said.

    Args:
        title: of the partition.
        group: the cursor.
        settings: what the member says.

    Raises:
        PreconditionFailed: it says something else.
    """
    if group.settings is None or group.settings == settings:
        return
    for name, argument in _SETTINGS.items():
        here, there = _shown(name, getattr(group.settings, name)), _shown(name, getattr(settings, name))
        if here != there:
            raise PreconditionFailed(
                f"group '{group.name}' of {title} has {argument} {here}, and a member asks for {there}; "
                "use the same, or delete the group"
            )


def _shown(name: str, value: object) -> object:
    if name == "is_shared":
        return "shared" if value else "ordered"
    return list(value) if isinstance(value, tuple) else value
