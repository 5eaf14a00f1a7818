# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Engines say how many requests they have; time passes only where the wait sleeps."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import draining
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters.http import HttpAnswer

URL = "http://127.0.0.1:8001"


def metrics(running: float, waiting: float = 0) -> HttpAnswer:
    lines = f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} {waiting}\n'
    return HttpAnswer(200, lines.encode())


@pytest.mark.parametrize(
    ("answer", "requests"),
    [
        (metrics(0), 0),
        (metrics(1), 1),
        (metrics(0, 2), 2),
        (metrics(3, 2), 5),
        (HttpAnswer(0, b"", "refused"), 0),
        (HttpAnswer(500, metrics(4).body), 0),
    ],
)
def test_requests_of_an_engine(answer: HttpAnswer, requests: int) -> None:
    assert draining.requests(URL, lambda *words, **more: answer) == requests


@pytest.mark.parametrize(
    ("answers", "limit", "busy", "seconds"),
    [
        ([0, 0], 10, [], 1),  # idle once may be a gap
        ([1, 0, 1, 0, 0], 10, [], 4),
        ([1, 1, 1, 1, 1], 3, [URL], 3),
        ([0], 0, [URL], 0),
    ],
)
def test_until_idle(answers: list[int], limit: float, busy: list[str], seconds: float) -> None:
    now = [100.0]
    told = iter(answers)

    def fetch(*_words: Any, **_more: Any) -> HttpAnswer:
        return metrics(next(told))

    def sleep(length: float) -> None:
        now[0] += length

    assert draining.until_idle([URL], limit, fetch, lambda: now[0], sleep) == busy
    assert now[0] - 100 == seconds
