"""A client of the HTTP API for tests: one keep-alive connection, JSON in and out."""

import base64
import http.client
import json
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


class Refused(Exception):
    """An answer that is an error.

    Attributes:
        status: of HTTP.
        error: the word for programs.
        reason: the sentence.
    """

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status} {body}")
        self.status = status
        self.error = body.get("error") if isinstance(body, dict) else None
        self.reason = body.get("reason") if isinstance(body, dict) else None


class Browser:
    """Asks a management process.

    Args:
        url: of the process.
        user: who asks; "" for nobody.
        password: theirs.

    Attributes:
        headers: of the last answer.
        status: of the last answer.
    """

    def __init__(self, url: str, user: str = "guest", password: str = "guest") -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self.headers: dict[str, str] = {}
        self.status = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The body of the answer.

        Args:
            method: of HTTP.
            path: below /api, quoted, with parameters.
            body: becomes JSON; bytes stay as they are.
            headers: more of the request.

        Raises:
            Refused: the status is 400 or more.
        """
        sent = dict(headers or {})
        if self._login:
            sent.setdefault("Authorization", f"Basic {self._login}")
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        self._connection.request(method, f"/api{path}", content, sent)
        answer = self._connection.getresponse()
        self.status, self.headers = answer.status, {name.lower(): value for name, value in answer.getheaders()}
        said = answer.read()
        result = json.loads(said) if said else None
        if answer.status >= 400:
            raise Refused(answer.status, result)
        return result

    def get(self, path: str) -> Any:
        """The body of the answer to a GET."""
        return self.ask("GET", path)

    def put(self, path: str, body: Any = None) -> int:
        """The status of the answer to a PUT."""
        self.ask("PUT", path, body)
        return self.status

    def post(self, path: str, body: Any = None) -> Any:
        """The body of the answer to a POST."""
        return self.ask("POST", path, body)

    def delete(self, path: str) -> int:
        """The status of the answer to a DELETE."""
        self.ask("DELETE", path)
        return self.status
