"""The HTTP server: finds a request's endpoint, checks who asks, and answers in RabbitMQ's shape."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import parse_qsl

from aiohttp import hdrs, web

from shardmq.errors import AuthenticationFailed, ConnectionFault, ReplyCode, ShardmqError, Unavailable
from shardmq.management.api import ENDPOINTS
from shardmq.management.description.readable import description_of
from shardmq.management.metrics.endpoints import METRICS
from shardmq.management.own import ENDPOINTS as OWN_ENDPOINTS
from shardmq.management.page import page_file
from shardmq.management.state.callers import Caller, Callers, Credentials
from shardmq.management.state.facts import Facts
from shardmq.management.state.large_requests import LargeRequests
from shardmq.management.state.sessions import Sessions
from shardmq.management.web.audit import Audit
from shardmq.management.web.authentication import (
    CHALLENGE,
    COOKIE,
    PAGE_HEADER,
    SAFE_METHODS,
    USER,
    check_site,
    check_source,
    credentials_of,
    of_session,
)
from shardmq.management.web.call import BODY_BYTES_MAX, QUERY_BYTES_MAX, Body, Call
from shardmq.management.web.encoding import encoded
from shardmq.management.web.endpoint import PREFIX, Answer, Endpoint, Right
from shardmq.management.web.errors import NOT_MANAGER, PEERS_FAULTS, REFUSED_LOGIN, ApiError
from shardmq.management.web.streaming import send, whole

REQUEST_SECONDS: Final = 60.0
"""For one request, its body included."""

_log = logging.getLogger(__name__)


JSON: Final = {"Content-Type": "application/json; charset=utf-8"}

Handling = Callable[[web.Request], Awaitable[web.StreamResponse]]

NEEDED: Final = {
    Right.POLICYMAKER: "Not policymaker",
    Right.MONITORING: "Not monitor user",
    Right.ADMINISTRATOR: "Not administrator user",
}
"""What is said to callers without the right; RabbitMQ's words."""

LOGGED_PATH: Final = "logged_path"
"""Of a request: its path as logs may have it, where a part of it is a secret."""

PLAIN_PART: Final = re.compile(r"\{(\w+)\}")
"""A part of a path without an expression; aiohttp takes no braces in it, which names may have."""

SAFE_HEADERS: Final = {
    "Server": "shardmq",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept, Authorization, Cookie",
}


class Server:
    """Answers requests.

    Args:
        callers: the logins of those who ask.
        facts: of this process and its broker.
        endpoints: that there are.
        own: by whose login metrics are read that nobody logs in for, at a port of their own.
    """

    def __init__(
        self,
        callers: Callers,
        facts: Facts,
        endpoints: Sequence[Endpoint] = (*ENDPOINTS, *OWN_ENDPOINTS, *METRICS),
        own: Credentials | None = None,
    ) -> None:
        self._callers = callers
        self._facts = facts
        self._endpoints = (*endpoints, *description_of(endpoints))
        self._own = own
        self._sessions = Sessions()
        self._audit = Audit()
        self._large = LargeRequests()

    def application(self) -> web.Application:
        """The application for aiohttp, with all routes."""
        application = web.Application(middlewares=[self._guard], handler_args={"max_line_size": QUERY_BYTES_MAX})
        for endpoint in self._endpoints:
            self._route(application, endpoint)
        application.router.add_post(f"{PREFIX}/login", self._log_in)
        application.router.add_delete(f"{PREFIX}/login", self._log_out)
        application.router.add_get("/{file:.*}", page_file)
        return application

    def metrics(self) -> web.Application:
        """The application of a port for scrapes: metrics and probes, by the login of this process."""
        application = web.Application(middlewares=[self._guard], handler_args={"max_line_size": QUERY_BYTES_MAX})
        for endpoint in METRICS:
            self._route(application, endpoint, is_open=True)
        return application

    def _route(self, application: web.Application, endpoint: Endpoint, is_open: bool = False) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            if endpoint.has_secret:
                request[LOGGED_PATH] = f"{endpoint.prefix}{endpoint.path}"
            if is_open and hdrs.AUTHORIZATION not in request.headers and self._own is not None:
                try:
                    return await self._answered(request, endpoint, self._own)
                except AuthenticationFailed:
                    self._own = None  # guessing on would look like an attack
            return await self._answer(request, endpoint)

        parts = PLAIN_PART.sub(r"{\1:[^/]+}", endpoint.path)
        path = f"{endpoint.prefix}{parts}{{slash:/?}}"  # as RabbitMQ does, which clients have come to need
        if endpoint.method == hdrs.METH_GET:
            application.router.add_get(path, answer)
        else:
            application.router.add_route(endpoint.method, path, answer)

    async def _answer(self, request: web.Request, endpoint: Endpoint) -> web.StreamResponse:
        if endpoint.right is Right.NOTHING:
            return await self._sent(request, await self._handled(request, endpoint, None))
        credentials = credentials_of(request, self._sessions)
        try:
            return await self._answered(request, endpoint, credentials)
        except AuthenticationFailed as fault:
            error = ApiError.of(fault)
            if fault.code == ReplyCode.ACCESS_REFUSED:
                error.headers.update(CHALLENGE)
            raise error from fault

    async def _answered(self, request: web.Request, endpoint: Endpoint, who: Credentials) -> web.StreamResponse:
        async with self._callers.borrow(who, request.remote or "") as caller:
            if not endpoint.right.is_of(caller.tags):
                raise ApiError.not_authorised(NEEDED.get(endpoint.right, NOT_MANAGER))
            if endpoint.is_shared and PAGE_HEADER in request.headers:
                key = caller.user, request.raw_path
                answer = await self._facts.shared.get(key, lambda: self._encoded(request, endpoint, caller))
            else:
                answer = await self._handled(request, endpoint, caller)
            return await self._sent(request, answer)

    async def _encoded(self, request: web.Request, endpoint: Endpoint, caller: Caller) -> Answer:
        """An answer in JSON, encoded for all who share it: it comes, wherever the one who asked first is by then."""
        with caller.held():
            answer = await self._handled(request, endpoint, caller)
        body = await whole(answer.body) if isinstance(answer.body, AsyncIterator) else encoded(answer.body)
        return Answer(body, answer.status, {**answer.headers, **JSON})

    async def _log_in(self, request: web.Request) -> web.StreamResponse:
        """Begin a session of the page: a form with `username` and `password`, as RabbitMQ's has it."""
        check_site(request)
        form = parse_form(await Body(request, BODY_BYTES_MAX).rest())
        user, password = form.get("username", ""), form.get("password", "")
        if not user:
            raise ApiError.bad_request("give a form with username and password")
        credentials = Credentials(user, password)
        request[USER] = user
        check_source(request, credentials)
        async with self._callers.borrow(credentials, request.remote or "") as caller:
            tags = list(caller.tags)
        answer = self._response(request, Answer({"name": user, "tags": tags}))
        token = self._sessions.begin(credentials)
        self._audit.done(user, request.remote, "logged in")
        answer.set_cookie(COOKIE, token, httponly=True, samesite="Strict", secure=self._facts.is_tls, path="/")
        return answer

    async def _log_out(self, request: web.Request) -> web.StreamResponse:
        """End a session of the page; other sites' forms cannot."""
        of_session(request, self._sessions)
        self._sessions.end(request.cookies.get(COOKIE, ""))
        answer = self._response(request, Answer(status=204))
        answer.del_cookie(COOKIE, path="/")
        return answer

    async def _handled(self, request: web.Request, endpoint: Endpoint, caller: Caller | None) -> Answer:
        call = Call(request, caller, self._facts, endpoint.body_bytes_max)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                if endpoint.body_bytes_max > BODY_BYTES_MAX and not await call.is_small(self._large):
                    async with self._large.place(call.user):
                        answer = await _carried_out(endpoint, call, caller)
                else:
                    answer = await _carried_out(endpoint, call, caller)
        except TimeoutError:
            raise ApiError(503, "timeout", f"this was not done within {REQUEST_SECONDS:.0f} s") from None
        if caller is not None and request.method not in SAFE_METHODS:
            self._facts.shared.forget()
            self._audit.done(caller.user, request.remote, f"{request.method} {logged_path(request)}: {answer.status}")
        return answer

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handling) -> web.StreamResponse:
        """Answer every fault in RabbitMQ's shape; what we did not expect is logged, and told as 500."""
        try:
            return await handler(request)
        except ApiError as error:
            return self._failed(request, error)
        except ShardmqError as fault:
            return self._failed(request, ApiError.of(fault))
        except web.HTTPMethodNotAllowed as fault:
            allowed = ",".join(sorted(fault.allowed_methods))
            if request.method == hdrs.METH_OPTIONS:
                return web.Response(status=200, headers={**SAFE_HEADERS, "Allow": f"{allowed},OPTIONS"})
            reason = f"{request.method} is not allowed here; {allowed} is"
            return self._failed(request, ApiError(405, "Method Not Allowed", reason, {"Allow": allowed}))
        except web.HTTPNotFound:
            return self._failed(request, ApiError(404, "Object Not Found", "Not Found"))
        except web.HTTPException as fault:
            return self._failed(request, ApiError(fault.status, fault.reason, fault.text or fault.reason))
        except PEERS_FAULTS as fault:
            return self._failed(request, ApiError.bad_request(f"the request broke off: {fault}"))
        except Exception:  # noqa: BLE001  nobody is told of a traceback
            _log.exception("%s %s failed", request.method, logged_path(request))
            return self._failed(request, ApiError(500, "internal_error", "this request met a bug; the log says more"))

    def _failed(self, request: web.Request, error: ApiError) -> web.Response:
        body = {"error": error.error, "reason": error.reason}
        if USER in request and (request.method not in SAFE_METHODS or error.error == REFUSED_LOGIN):
            what = f"{request.method} {logged_path(request)}: {error.status}"
            self._audit.refused(request[USER], request.remote, what)
        headers = dict(error.headers)
        if PAGE_HEADER in request.headers:
            headers.pop("WWW-Authenticate", None)  # the browser would ask in the page's place
        return self._response(request, Answer(body, error.status, headers))

    async def _sent(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        """An answer, which is on its way already where it goes piece by piece."""
        if not isinstance(answer.body, AsyncIterator):
            return self._response(request, answer)
        return await send(request, answer.body, answer.status, {**SAFE_HEADERS, **JSON, **answer.headers})

    def _response(self, request: web.Request, answer: Answer) -> web.Response:
        del request
        headers = {**SAFE_HEADERS, **answer.headers}
        if answer.body is None:
            return web.Response(status=answer.status, headers=headers)
        if isinstance(answer.body, bytes | bytearray):
            return web.Response(body=answer.body, status=answer.status, headers=headers)
        return web.Response(
            body=encoded(answer.body), status=answer.status, headers=headers, content_type="application/json"
        )


async def _carried_out(endpoint: Endpoint, call: Call, caller: Caller | None) -> Answer:
    """The answer of an endpoint; who only looks asks again where a gateway was lost, as there may be others.

    Raises:
        Unavailable: a gateway was lost while it may have changed something.
    """
    try:
        return await endpoint.handler(call)
    except AuthenticationFailed:
        raise
    except ConnectionFault as fault:
        if endpoint.method == hdrs.METH_GET and caller is not None:
            return await endpoint.handler(call)
        raise Unavailable(f"{fault.text}; it may be done or not: look before you send it again") from fault


def logged_path(request: web.Request) -> str:
    """The path of a request, as logs may have it."""
    path: str = request.get(LOGGED_PATH, request.raw_path)
    return path


def parse_form(content: bytes) -> dict[str, str]:
    """The fields of a form, as browsers encode it.

    Raises:
        ApiError: it is none.
    """
    try:
        return dict(parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=10))
    except ValueError as fault:
        raise ApiError.bad_request(
            "give a form with username and password, as application/x-www-form-urlencoded"
        ) from fault
