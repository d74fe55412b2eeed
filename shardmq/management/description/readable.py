"""The description as a page of HTML, and the endpoints that serve both. The page needs no script, and no login."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from shardmq.management.description.document import document, path_of
from shardmq.management.web.call import Call
from shardmq.management.web.encoding import encoded
from shardmq.management.web.endpoint import Answer, Endpoint, Handler, Right
from shardmq.management.web.listing import PARAMETERS

DOCUMENT: Final = "/openapi.json"

TITLE: Final = "shardmq's HTTP API"


def page(endpoints: Iterable[Endpoint]) -> str:
    """A table of endpoints, in HTML."""
    rows = "".join(_rows(endpoints))
    lists = ", ".join(f"<code>{name}</code>" for name in PARAMETERS)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title></head><body>'
        f'<h1>{TITLE}</h1><p>The same for programs, with types: <a href="openapi.json">openapi.json</a>.</p>'
        f"<p>Lists take {lists}.</p><table><thead><tr><th>Method</th><th>Path</th><th>What it does</th><th>Needs</th>"
        f"<th>Parameters</th></tr></thead><tbody>{rows}</tbody></table></body></html>"
    )


def _rows(endpoints: Iterable[Endpoint]) -> Iterator[str]:
    for endpoint in endpoints:
        parameters = ", ".join(("of lists",) * endpoint.is_list + endpoint.parameters)
        cells = (
            endpoint.method,
            f"<code>{escape(path_of(endpoint))}</code>",
            escape(endpoint.summary),
            endpoint.right.name.lower(),
            escape(parameters),
        )
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _serve(content: bytes, kind: str) -> Handler:
    async def answer(call: Call) -> Answer:
        del call
        return Answer(content, headers={"Content-Type": kind})

    return answer


def description_of(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """The endpoints that describe these."""
    known = tuple(endpoints)
    html = _serve(page(known).encode(), "text/html; charset=utf-8")
    return (
        Endpoint(
            "GET",
            DOCUMENT,
            _serve(encoded(document(known)), "application/json"),
            Right.NOTHING,
            "This API in OpenAPI 3.1.",
        ),
        Endpoint("GET", "/index.html", html, Right.NOTHING, "This API as a page."),
    )
