"""The HTTP API in OpenAPI 3.1: https://spec.openapis.org/oas/v3.1.1.html.

Clients made from it get what the process answers: names and parameters come from the endpoints that serve.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, TypedDict, get_origin

import msgspec

from shardmq.management.description.answers import ANSWERS
from shardmq.management.description.bodies import BODIES
from shardmq.management.description.checks import CHECKS
from shardmq.management.samples.spans import AGE_SECONDS_MAX, SAMPLES_MAX
from shardmq.management.samples.spans import PARAMETERS as SAMPLES
from shardmq.management.web.authentication import COOKIE, PAGE_HEADER
from shardmq.management.web.endpoint import PREFIX, Endpoint, Right
from shardmq.management.web.listing import PAGE_SIZE, PAGE_SIZE_MAX, PARAMETERS
from shardmq.version import VERSION

Table = dict[str, Any]

SCHEMAS: Final = "#/components/schemas/"


class Error(TypedDict):
    """Why a request was refused."""

    error: str
    reason: str


TEXT: Final[Table] = {"type": "string"}
_FLAG: Final[Table] = {"type": "string", "enum": ["true", "false"]}
_SECONDS: Final[Table] = {"type": "integer", "minimum": 1, "maximum": AGE_SECONDS_MAX}
_COUNT: Final[Table] = {"type": "integer", "minimum": 0}

QUERY: Final[dict[str, Table]] = {
    "page": {"type": "integer", "minimum": 1},
    "page_size": {"type": "integer", "minimum": 1, "maximum": PAGE_SIZE_MAX, "default": PAGE_SIZE},
    **dict.fromkeys(("use_regex", "sort_reverse", "pagination", "disable_stats", "enable_queue_totals"), _FLAG),
    **dict.fromkeys(("if-unused", "if-empty"), _FLAG),
    **dict.fromkeys(SAMPLES, _SECONDS),
    **dict.fromkeys(("start", "count", "older_than", "newer_than"), _COUNT),
    "family": {"type": "array", "items": TEXT},
    "vhost": {"type": "array", "items": TEXT},
}
"""Types of parameters; those that are not here are texts."""

COLUMNS: Final = "Fields with commas between them; others are left out, required ones, too."

_SAID: Final = {
    "columns": COLUMNS,
    **{name: "How far back samples go, in seconds; with its step." for name in SAMPLES if name.endswith("_age")},
    **{
        name: f"The step between samples, in seconds; {SAMPLES_MAX} of them at most."
        for name in SAMPLES
        if name.endswith("_incr")
    },
}
"""What there is to say of parameters."""

_PART: Final = re.compile(r"\{(\w+)(?::([^}]*))?\}")


def path_of(endpoint: Endpoint) -> str:
    """The path of an endpoint as OpenAPI writes it, without expressions."""
    return endpoint.prefix + _PART.sub(r"{\1}", endpoint.path)


def document(endpoints: Iterable[Endpoint]) -> Table:
    """The description of endpoints, as an object for JSON."""
    described = [endpoint for endpoint in endpoints if "//" not in endpoint.path]  # a path of Flower's; see queues.py
    both = (each for endpoint in described for each in (_item(endpoint), _body(endpoint)))
    types = dict.fromkeys(each for each in both if _is_named(each))
    _, schemas = msgspec.json.schema_components([*types, Error], ref_template=SCHEMAS + "{name}")
    paths: dict[str, Table] = {}
    for endpoint in described:
        paths.setdefault(path_of(endpoint), {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "shardmq",
            "version": VERSION,
            "description": "RabbitMQ's HTTP API, and below /api/shardmq what it has no words for. Parts of paths are "
            "percent-encoded: the virtual host / is %2F.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"password": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": f"From POST {PREFIX}/login. Changes need the header {PAGE_HEADER}, too.",
                },
            },
        },
    }


def _is_named(kind: Any) -> bool:
    """Whether a type has a schema of its own among the components."""
    return isinstance(kind, type) and kind not in (dict, list, str) and get_origin(kind) is None


def _item(endpoint: Endpoint) -> Any:
    """The type of an answer, or of the items in its list; None where any object may be."""
    known = ANSWERS.get(_PART.sub(r"{\1}", endpoint.path))
    if known is not None and endpoint.answer is not None:
        return known
    return endpoint.answer if _is_named(endpoint.answer) else None


def _body(endpoint: Endpoint) -> Any:
    return BODIES.get(endpoint.path, endpoint.body) if endpoint.body is not None else None


def _schema(kind: Any) -> Table:
    return {"$ref": SCHEMAS + kind.__name__} if _is_named(kind) else {"type": "object"}


def _operation(endpoint: Endpoint) -> Table:
    operation: Table = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.path.strip("/").removeprefix("shardmq/").split("/")[0]],
        "description": _RIGHTS[endpoint.right],
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.right is Right.NOTHING:
        operation["security"] = []
    if endpoint.body is not None:
        schema = _schema(_body(endpoint))
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


_RIGHTS: Final = {
    Right.NOTHING: "Needs no login.",
    Right.MANAGEMENT: "Needs the tag management, or one above it.",
    Right.POLICYMAKER: "Needs the tag policymaker or administrator.",
    Right.MONITORING: "Needs the tag monitoring or administrator.",
    Right.ADMINISTRATOR: "Needs the tag administrator.",
}


def _name(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", _PART.sub(r"by_\1", endpoint.path.replace("-", "_")))
    return "_".join([endpoint.method.lower(), *words])


def _path_parameters(endpoint: Endpoint) -> list[Table]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {**TEXT, "pattern": f"^{expression}$"} if expression else {**TEXT, "minLength": 1},
        }
        for name, expression in _PART.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[Table]:
    names = (
        *(PARAMETERS if endpoint.is_list else ()),
        *endpoint.parameters,
        *(SAMPLES if endpoint.has_samples else ()),
    )
    return [
        {
            "name": name,
            "in": "query",
            "schema": QUERY.get(name, TEXT),
            **({"description": _SAID[name]} if name in _SAID else {}),
        }
        for name in names
    ]


def _json(description: str, schema: Table) -> Table:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _responses(endpoint: Endpoint) -> Table:
    refused = _json("Refused.", _schema(Error))
    if endpoint.summary.startswith("Not implemented"):
        return {"501": _json("Not there.", _schema(Error)), "default": refused}
    responses: Table = {"default": refused}
    item = _item(endpoint)
    if endpoint.answer is None and item is None and not endpoint.prefix:
        responses["200"] = {"description": "Metrics.", "content": {"text/plain": {"schema": TEXT}}}
    elif endpoint.answer is None and item is None:
        responses["204"] = {"description": "Done."}
        if endpoint.method in ("PUT", "POST"):
            responses["201"] = {"description": "Made."}
    else:
        responses["200"] = _json(endpoint.summary, _answer(endpoint, item))
    if endpoint.path in CHECKS:
        responses["503"] = _json("The check failed.", {"anyOf": [_schema(item), _schema(Error)]})
    return responses


def _answer(endpoint: Endpoint, item: Any) -> Table:
    if endpoint.answer is str:
        return TEXT
    if get_origin(endpoint.answer) is not list:
        return _schema(item)
    rows = {"type": "array", "items": _schema(item)}
    if not endpoint.is_list:
        return rows
    counts = ("page", "page_size", "page_count", "item_count", "filtered_count", "total_count")
    page = {
        "type": "object",
        "required": ["items", *counts],
        "properties": {"items": rows, **dict.fromkeys(counts, _COUNT)},
        "description": "What is answered when a page is asked for.",
    }
    return {"anyOf": [rows, page]}
