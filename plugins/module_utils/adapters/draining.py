# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until engines that get no new request have finished those they have, by their own figures."""

from __future__ import annotations

import re
from typing import Callable, Sequence

from .http import Fetch

HTTP_SECONDS = 10.0
POLL_SECONDS = 1.0
REQUESTS = re.compile(rb"^vllm:num_requests_(?:running|waiting)\{[^}]*\} ([0-9.e+]+)", re.MULTILINE)


def until_idle(
    urls: Sequence[str], seconds: float, fetch: Fetch, clock: Callable[[], float], sleep: Callable[[float], None]
) -> list[str]:
    """Those of ``urls`` that are still busy after ``seconds``; empty as soon as all were idle twice in a row."""
    deadline = clock() + seconds
    idle_before: set[str] = set()
    while True:
        # Twice, because a worker of the gateway that is about to leave may just be sending its last request.
        idle = {url for url in urls if requests(url, fetch) == 0}
        busy = [url for url in urls if url not in idle & idle_before]
        if not busy or clock() >= deadline:
            return busy
        idle_before = idle
        sleep(POLL_SECONDS)


def requests(url: str, fetch: Fetch) -> float:
    """Requests that run or wait in this engine. One that does not answer has nothing to finish."""
    answer = fetch("GET", f"{url}/metrics", timeout=HTTP_SECONDS)
    return sum(float(number) for number in REQUESTS.findall(answer.body)) if answer.status == 200 else 0.0
