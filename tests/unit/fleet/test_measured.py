# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was measured, and the share that would do. The receipt is one of the lab's, the H200's total is a real one."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import measured
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.gpus import Card

RECEIPT: dict[str, Any] = {
    "stack": "qwen35-vl",
    "share": 0.4,
    "kv_cache": None,
    "engine": {
        "weights_gib": 13.67, "graph_capture_gib": 0.31, "kv_cache_gib": 22.94, "kv_cache_tokens": 751_696,
        "max_model_len": 32_768,
    },
    "memory": [{"gpu": 1, "took_mib": 37_890}],
}  # fmt: skip
CARD = Card(1, "GPU-1", "RTX PRO 6000", 97_887, 600, 79_479, 17_808)


def changed(**changes: Any) -> dict[str, Any]:
    engine = {**RECEIPT["engine"], **changes.pop("engine", {})}
    return {**RECEIPT, "engine": engine, **changes}


def test_the_rest_is_what_the_engine_does_not_name() -> None:
    (one,) = measured.read([RECEIPT], [CARD])
    assert one.took == pytest.approx(37.0, abs=0.01)
    assert one.rest == pytest.approx(37.0 - 13.67 - 0.31 - 22.94, abs=0.01)


def test_the_peak_is_what_the_share_covered_beside_all_that_stayed() -> None:
    (one,) = measured.read([RECEIPT], [CARD])
    assert one.peak == pytest.approx(0.4 * 97_287 / 1024 - 22.94 - 13.67 - one.rest, abs=0.01)
    (fixed,) = measured.read([changed(kv_cache=6 * 2**30)], [CARD])
    assert fixed.peak is None  # the share has left it anything


@pytest.mark.parametrize(
    ("floor_gib", "cards", "least"),
    [
        (0, 1, 0.17),
        (10, 1, 0.17),
        (34, 1, 0.36),  # 34 of 95.0 GiB
        (34, 2, 0.18),  # 17 of each
        (60, 1, 0.4),  # the plan has refused that; at least nothing worse is advised
    ],
)
def test_no_share_below_the_floor_of_the_model_is_advised(floor_gib: int, cards: int, least: float) -> None:
    memory = [{"gpu": 1, "took_mib": 37_890}, {"gpu": 2, "took_mib": 37_890}][:cards]
    one, *_ = measured.read([changed(memory=memory)], [CARD], {"qwen35-vl": floor_gib * 2**30})
    assert one.least_share == least


@pytest.mark.parametrize(
    ("changes", "card", "least"),
    [
        # 22.94 GiB hold 22.94 requests: 21.94 GiB of 95.0 are spare, 0.231.
        ({}, CARD, 0.17),
        # The same on an H200: 21.94 of 139.8 GiB.
        ({}, Card(1, "GPU-1", "H200", 143_771, 616, 0, 143_155), 0.25),
        # It holds exactly one: nothing is spare.
        ({"engine": {"kv_cache_tokens": 32_768}}, CARD, 0.4),
        # Less than one cannot start at all; nothing to give away.
        ({"engine": {"kv_cache_tokens": 30_000}}, CARD, 0.4),
        ({"kv_cache": 6 * 2**30}, CARD, None),
        ({"share": None}, CARD, None),
        ({"engine": {"max_model_len": None}}, CARD, None),
        ({}, Card(1, "GPU-1", "MIG", None, None, None, None), None),
        ({}, Card(0, "GPU-0", "another", 97_887, 600, 0, 97_287), None),
    ],
)
def test_the_least_share_holds_one_request_of_full_length(changes: dict[str, Any], card: Card, least: Any) -> None:
    (one,) = measured.read([changed(**changes)], [card])
    assert one.least_share == least


def test_what_nobody_measured_is_not_made_up() -> None:
    (one,) = measured.read([{"stack": "s", "memory": [{"gpu": 1, "took_mib": None}]}], [CARD])
    assert (one.took, one.rest, one.least_share) == (None, None, None)
    assert measured.report([one], [CARD], {})[1] == "  s: no share, not measured: the engine named no figures"


def test_the_report_says_what_would_fit() -> None:
    lines = measured.report(measured.read([RECEIPT], [CARD]), [CARD], {"qwen35-vl": 0.5, "new": 0.1})
    assert lines == [
        "GPU 1 RTX PRO 6000: 95.0 GiB, shares 0.40, free now 17.4 GiB: a share of up to 0.18 could start "
        "beside them, 0.41 with the least shares below",
        "  qwen35-vl: share 0.40 (the inventory now says 0.5), took 37.00 GiB: weights 13.67, graphs 0.31, "
        "KV cache 22.94, context and more 0.08; 1.31 more for the peak at its start",
        "      751,696 tokens of KV cache are 22.9 requests of 32,768; one fits with a share of 0.17",
        "not measured yet: new",
    ]
