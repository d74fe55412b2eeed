"""The page for operators: plain ES modules that ask the HTTP API, and how they are served.

A browser loads index.html, and main.js says who is logged in and which view is shown. The folder views has the views,
one a file; parts has what they are made of: tables, charts, dialogs; vendor has libraries, with their licences. Beside
them are addresses of views (route.js), what keeps them current (live.js), requests to the HTTP API (api.js), and
numbers as people read them (format.js).

There is no build step: the files are what the browser runs.
"""

import functools
import gzip
import hashlib
from importlib import resources
from typing import Final, NamedTuple

from aiohttp import web

TYPES: Final = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
"""Content types by ending; other files are not served."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing comes from another host, and nothing runs that is not a file of this folder."""

HEADERS: Final = {
    "Server": "shardmq",
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


class PageFile(NamedTuple):
    """A file of the page as it is sent: packed, with a tag that changes with its content."""

    packed: bytes
    kind: str
    tag: str


@functools.cache
def _files() -> dict[str, PageFile]:
    found: dict[str, PageFile] = {}
    ahead = [("", resources.files(__name__))]
    while ahead:
        prefix, folder = ahead.pop()
        for entry in folder.iterdir():
            name = prefix + entry.name
            kind = TYPES.get(entry.name.rpartition(".")[2])
            if entry.is_dir() and entry.name != "__pycache__":
                ahead.append((f"{name}/", entry))
            elif kind is not None and entry.is_file():
                content = entry.read_bytes()
                found[name] = PageFile(gzip.compress(content, 6), kind, hashlib.sha256(content).hexdigest()[:20])
    return found


async def page_file(request: web.Request) -> web.StreamResponse:
    """Answer with a file of the page.

    Raises:
        HTTPNotFound: there is no such file.
    """
    file = _files().get(request.match_info["file"] or "index.html")
    if file is None:
        raise web.HTTPNotFound
    headers = {**HEADERS, "ETag": f'"{file.tag}"'}
    if file.tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = file.packed
    else:
        body = gzip.decompress(file.packed)
    return web.Response(body=body, headers=headers, content_type=file.kind, charset="utf-8")
