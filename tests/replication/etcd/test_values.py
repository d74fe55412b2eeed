"""Values of the register: written, read, and refused by name."""

import msgspec
import pytest

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.errors import UnreadableValue
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, WISHES, Broker, Host, Wish, decode, encode

GROUP = Group("f00d", 3, "a", ("a", "b"), ("a", "b", "c"), 2)


def test_values_are_read_as_they_were_written() -> None:
    assert decode(GROUPS, "/p/groups/shard-0", encode(GROUP, "s-1")) == (GROUP, "s-1")
    host = Host("1a2b", {"bus": "tcp://10.0.0.1:7000"}, {"zone": "x"})
    assert decode(HOSTS, "/p/hosts/a", encode(host, "s-2")) == (host, "s-2")
    assert decode(BROKER, "/p/broker", encode(Broker("cafe", 4, 2), "s-3")) == (Broker("cafe", 4, 2), "s-3")
    wish = Wish(7, "b", source="a", target="b")
    assert decode(WISHES, "/p/wishes/shard-0", encode(wish, "s-4")) == (wish, "s-4")


def test_people_can_read_them_and_newer_versions_may_add_to_them() -> None:
    written = encode(Host("1a2b"), "s-1")
    assert written == (
        b'{"session": "1a2b", "addresses": {}, "labels": {}, "is_draining": false, "is_stopping": false, '
        b'"readiness": null, "format": 15, "swap": "s-1"}'
    )
    later = msgspec.json.encode({**msgspec.json.decode(written), "rack": 7})
    assert decode(HOSTS, "/p/hosts/a", later) == (Host("1a2b"), "s-1")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Input data was truncated"),
        (b"\xff", "invalid"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"incarnation":"i"}', "missing required field `term`"),
        (encode(GROUP, "").replace(b'["a", "b"]', b'["b"]'), "the primary 'a' of term 3 is not in the in-sync set"),
    ],
)
def test_an_unreadable_value_is_refused_with_the_name_of_its_key(data: bytes, why: str) -> None:
    with pytest.raises(
        UnreadableValue, match="the value of /p/groups/shard-0 in etcd is no group of a broker"
    ) as refusal:
        decode(GROUPS, "/p/groups/shard-0", data)
    assert refusal.value.key == "/p/groups/shard-0"
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"in_sync": ()}, "the in-sync set is empty"),
        ({"in_sync": ("b",)}, "the primary 'a' of term 3 is not in the in-sync set"),
        ({"primary": ""}, "the primary '' of term 3 is not in the in-sync set"),
        ({"in_sync": ("a", "z")}, "z of the in-sync set is no replica"),
        ({"replicas": ("a", "b", "b")}, "named twice"),
        ({"min_in_sync": 0}, "min_in_sync of 1 or more"),
    ],
)
def test_a_group_that_must_not_be_is_neither_written_nor_read(changed: dict[str, object], why: str) -> None:
    fields = msgspec.to_builtins(GROUP) | changed
    with pytest.raises(ValueError, match=why):
        encode(msgspec.convert(fields, Group), "s-1")
    with pytest.raises(UnreadableValue, match=why):
        decode(GROUPS, "/p/groups/shard-0", msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Broker("cafe", 0, 2), "one shard or more"),
        (Broker("cafe", 4, 2, min_in_sync=3), "a broker with 2 replicas has a min_in_sync of 1 to 2"),
        (Host(""), "a host has a session"),
        (Wish(source="a"), "a move has a target"),
    ],
)
def test_other_values_that_must_not_be_are_not_written(value: msgspec.Struct, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode(value, "s-1")
