"""The codec's tables against the machine-readable specification that Debian ships, as RabbitMQ publishes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

from shardmq.errors import ReplyCode
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.errors import HARD
from shardmq.protocol.amqp.events import BODY, END, FRAME_MIN, HEADER, HEARTBEAT, METHOD
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.protocol.amqp.methods.codec import METHODS

FILE: Final = "usr/share/amqp/specs/0-9-1-rabbit/amqp0-9-1.stripped.extended.xml"

BESIDE: Final = {
    (10, 60): ("connection.blocked", ["shortstr"]),
    (10, 61): ("connection.unblocked", []),
    (10, 70): ("connection.update-secret", ["longstr", "shortstr"]),
    (10, 71): ("connection.update-secret-ok", []),
    (30, 10): ("access.request", ["shortstr", *["bit"] * 5]),
    (30, 11): ("access.request-ok", ["short"]),
}
"""Methods that RabbitMQ has and this file has not; those of `access` are from its 0-8."""

NAMED_ELSE: Final = {"no_wait": "nowait", "global": "is_global"}
"""Fields whose names are other ones here; those that are reserved have the names that they had once."""


@pytest.fixture(scope="module")
def specification(find_peer: Callable[..., Path]) -> ElementTree.Element:
    return ElementTree.parse(find_peer("amqp-specs", f"debian/{FILE}", Path("/") / FILE)).getroot()


def domains_of(specification: ElementTree.Element) -> dict[str, str]:
    return {domain.attrib["name"]: domain.attrib["type"] for domain in specification.iter("domain")}


def type_of(specification: ElementTree.Element, field: ElementTree.Element) -> str:
    return domains_of(specification)[field.get("domain") or field.attrib["type"]]


def methods_of(specification: ElementTree.Element) -> dict[tuple[int, int], tuple[str, ElementTree.Element]]:
    return {
        (int(group.attrib["index"]), int(method.attrib["index"])): (
            f"{group.attrib['name']}.{method.attrib['name']}",
            method,
        )
        for group in specification.findall("class")
        for method in group.findall("method")
    }


def test_every_method_is_there_and_no_other(specification: ElementTree.Element) -> None:
    written = {ids: name for ids, (name, _) in methods_of(specification).items()}
    assert {ids: kind.name for ids, kind in METHODS.items()} == written | {
        ids: name for ids, (name, _) in BESIDE.items()
    }


def test_every_methods_fields_are_those_of_the_specification_in_its_order(specification: ElementTree.Element) -> None:
    for ids, (name, method) in methods_of(specification).items():
        ours = METHODS[ids]
        written = method.findall("field")
        types = [domains_of(specification)[domain] for domain in ours.domains]
        assert types == [type_of(specification, field) for field in written], name
        for own, field in zip(ours.__struct_fields__, written, strict=True):
            if not field.get("reserved"):
                plain = field.attrib["name"].replace("-", "_")
                assert own == NAMED_ELSE.get(plain, plain), name


def test_what_the_file_has_not_is_as_rabbitmq_has_it() -> None:
    for ids, (name, domains) in BESIDE.items():
        assert (METHODS[ids].name, list(METHODS[ids].domains)) == (name, domains)


def test_every_answer_is_named_after_its_request(specification: ElementTree.Element) -> None:
    names = {kind.name for kind in METHODS.values()}
    for ids, (name, method) in methods_of(specification).items():
        group = name.split(".")[0]
        answers = {f"{group}.{response.attrib['name']}" for response in method.findall("response")}
        assert METHODS[ids].is_synchronous == (f"{name}-ok" in names), name
        if method.get("synchronous") and answers:
            assert answers <= names
            assert f"{name}-ok" in answers


def test_one_method_alone_brings_content_to_a_server(specification: ElementTree.Element) -> None:
    with_content = {
        name: ids
        for ids, (name, method) in methods_of(specification).items()
        if method.get("content") and "server" in {place.get("name") for place in method.findall("chassis")}
    }
    assert with_content == {"basic.publish": BasicPublish.id}


def test_the_properties_are_those_of_the_specification_in_its_order(specification: ElementTree.Element) -> None:
    basic = next(group for group in specification.findall("class") if group.attrib["name"] == "basic")
    written = [
        (field.attrib["name"].replace("-", "_"), type_of(specification, field)) for field in basic.findall("field")
    ]
    assert written[-1] == ("reserved", "shortstr")
    assert [(name, domain) for name, domain, _ in properties.FIELDS] == [*written[:-1], ("cluster_id", "shortstr")]
    assert [place for *_, place in properties.FIELDS] == list(range(15, 1, -1))


def test_numbers_of_frames_and_codes_are_those_of_the_specification(specification: ElementTree.Element) -> None:
    constants = {constant.attrib["name"]: constant for constant in specification.findall("constant")}

    def value(name: str) -> int:
        return int(constants[name].attrib["value"])

    for name, number in (
        ("frame-method", METHOD),
        ("frame-header", HEADER),
        ("frame-body", BODY),
        ("frame-heartbeat", HEARTBEAT),
        ("frame-end", END),
        ("frame-min-size", FRAME_MIN),
    ):
        assert number == value(name), name
    codes = {name: constant for name, constant in constants.items() if constant.get("class")}
    del codes["no-consumers"]  # of `immediate`, which RabbitMQ has not
    for name, constant in codes.items():
        code = ReplyCode[name.upper().replace("-", "_")]
        assert code == value(name)
        assert (code in HARD) == (constant.attrib["class"] == "hard-error"), name
    of_native_clients = {"RANGE_ERROR"}  # AMQP's hear another
    known = {name.upper().replace("-", "_") for name in codes} | {"NO_ROUTE"} | of_native_clients
    assert {code.name for code in ReplyCode} == known
