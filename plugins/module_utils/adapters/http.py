# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One HTTP request, without proxies and without exceptions: what went wrong is a value too."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional
from urllib.parse import urlsplit

LARGEST = 64 * 1024 * 1024  # bytes of a body; more is no answer of a model server


@dataclass(frozen=True)
class HttpAnswer:
    """``status`` 0: no answer, and ``error`` says why ("timed out after 5 s", "connection refused")."""

    status: int
    body: bytes = b""
    error: str = ""
    seconds: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The parsed body, None when it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


Fetch = Callable[..., HttpAnswer]


def fetch(
    method: str,
    url: str,
    body: Optional[Any] = None,
    headers: Optional[Mapping[str, str]] = None,
    timeout: float = 30.0,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> HttpAnswer:
    """Send one request and read the whole answer. ``body``: bytes as they are, anything else as JSON.

    ``timeout`` (seconds) is for connecting and for each wait for data. Environment proxies are not used: engines and
    gateways are asked directly. Redirects are answers, not followed.
    """
    start = clock()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return HttpAnswer(0, error=f"{url!r} is no http(s) address")
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode("utf-8")
        sent.setdefault("Content-Type", "application/json")
    connection: http.client.HTTPConnection
    try:
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    except ValueError as error:  # a port that is no number
        return HttpAnswer(0, error=f"{url!r}: {error}")
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body=body, headers=sent)
        response = connection.getresponse()
        content = response.read(LARGEST)
        if response.length:  # what the header promised and did not come
            return HttpAnswer(0, error=f"the answer broke off after {len(content)} bytes", seconds=clock() - start)
        received = {name.lower(): value for name, value in response.getheaders()}
        return HttpAnswer(response.status, content, "", clock() - start, received)
    except (TimeoutError, socket.timeout):  # two classes before Python 3.10
        return HttpAnswer(0, error=f"timed out after {timeout:g} s", seconds=clock() - start)
    except (OSError, http.client.HTTPException, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return HttpAnswer(0, error=f"{said[:1].lower()}{said[1:]}", seconds=clock() - start)
    finally:
        connection.close()
