# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks a server its questions over HTTP: an engine directly, or a model behind a gateway."""

from __future__ import annotations

import base64
from typing import Any, Callable, Mapping, Optional

from ..fleet import questions
from ..fleet.verdict import Answer, Mark, Verdict
from .http import Fetch
from .http import fetch as http_fetch


def ask(
    base_url: str,
    served_model_name: str,
    asks: Mapping[str, Any],
    *,
    seed: int,
    api_key: str = "",
    fetch: Fetch = http_fetch,
    timeout: float = 120.0,
    progress: Optional[Callable[[dict[str, Any]], None]] = None,
) -> list[dict[str, Any]]:
    """One verdict (plain JSON) for each question of ``questions.select(asks)``, in order.

    ``timeout`` in seconds for one request. ``progress`` is told each verdict as it comes. One request at a time: a
    check must not push users' requests aside. When nothing answers any more, the remaining questions are not asked.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    verdicts = []
    for question in questions.select({**asks, "served_model_name": served_model_name}):
        verdict = _put(question, base_url.rstrip("/"), served_model_name, seed, headers, fetch, timeout).as_dict()
        verdicts.append(verdict)
        if progress:
            progress(verdict)
        if verdict["code"] in ("no_connection", "answer_timeout", "engine_dead", "api_key_refused"):
            break
    return verdicts


def _put(
    question: questions.Question,
    base_url: str,
    model: str,
    seed: int,
    headers: Mapping[str, str],
    fetch: Fetch,
    timeout: float,
) -> Verdict:
    marks: list[Mark] = []
    for request in question.requests(seed):
        body = {"model": model, **request.body} if request.method == "POST" else None
        got = fetch(request.method, base_url + request.path, body, headers, timeout)
        answer = Answer(got.status, got.json() if got.body else None, got.text, got.seconds, got.error)
        marks.append(question.mark(request, answer))
        verdict = question.judge(marks)
        if verdict:
            return verdict
    raise AssertionError(f"{question.code} drew too few requests")  # its numbers and its draws disagree


def read_picture(source: str, fetch: Fetch = http_fetch, timeout: float = 30.0) -> str:
    """A picture of the owner's, given by path, http(s) URL or data URL, as a data URL that needs no network.

    Raises ValueError with what to do when it cannot be read.
    """
    if source.startswith("data:"):
        return source
    if source.startswith(("http://", "https://")):
        got = fetch("GET", source, None, {"User-Agent": "modelfleet"}, timeout)
        if got.status != 200 or not got.body:
            reason = got.error or f"HTTP {got.status}"
            raise ValueError(f"The picture {source} could not be fetched ({reason}). Give a path to a copy instead.")
        content = got.body
    else:
        try:
            with open(source, "rb") as file:
                content = file.read()
        except OSError as error:
            raise ValueError(f"The picture {source} could not be read: {error.strerror}.") from error
    if not content.startswith((b"\x89PNG", b"\xff\xd8", b"GIF8", b"RIFF")):
        raise ValueError(f"The picture {source} is no PNG, JPEG, GIF or WebP file.")
    return questions.data_url(content)


def decode(picture: str) -> bytes:
    """The bytes of a picture that a verdict carries."""
    return base64.b64decode(picture)
