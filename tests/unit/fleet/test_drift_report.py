# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is made of the reports of all hosts: text, JSON, JUnit and the page, also of what was written to do harm."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from typing import Any, Optional
from xml.etree import ElementTree

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import drift_page, drift_report

NOW = 1796100000.0
HOSTILE = "</td><script>alert(1)</script><img src=x onerror='a()'>\"&<b>\x00\x1b[31m\ud800"
RECEIPT = {
    "at": "2026-12-01T031051Z", "seconds": 6.0, "asked": True, "questions": 9, "passed": 9, "took_mib": {"1": 37890},
    "version": "0.32.0", "weights_gib": 13.67, "kv_cache_gib": 22.94, "kv_cache_tokens": 751696,
}  # fmt: skip


def difference(part: str, stack: str, item: str, want: str, have: str, action: str = "recreate") -> dict[str, str]:
    return {"part": part, "stack": stack, "item": item, "want": want, "have": have, "action": action}


def stack(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "container": f"vllm-{name}", "image": "r/v@sha256:0", "served_model_name": f"model-{name}",
        "gpus": [1], "share": 0.4, "kv_cache": None, "url": "http://127.0.0.1:8007", **more,
    }  # fmt: skip


def report(host: str, status: str = "none", **more: Any) -> dict[str, Any]:
    return {
        "host": host, "at": NOW, "seconds": 2.4, "status": status, "differences": [], "trouble": [], "warnings": [],
        "cards": [], "stacks": [], **more,
    }  # fmt: skip


def finding(code: str, place: str, problem: str) -> dict[str, Any]:
    return {"code": code, "place": place, "problem": problem, "remedy": "Do something.", "severity": "error",
            "host": None, "stack": None}  # fmt: skip


GOOD = report("ana-docker", gateway={"routes": ["ana-ml2--a"], "step": ""})
DRIFTED = report(
    "ana-ml2",
    "drift",
    differences=[
        difference("stack", "b", "environment HF_HOME", "/hub", "/tmp"),
        difference("stack", "a", "container.state", "running", "exited (137)", "start"),
        difference("host", "", "daemon.json live-restore", "true", "not set", "reload"),
        difference("stack", "b", "ports", "8000", "8001"),
    ],
    warnings=[finding("restart_would_not_fit", "ana-ml2: GPU 1", "It would not fit.")],
    cards=[
        {
            "index": 1, "uuid": "GPU-1", "name": "NVIDIA H200", "total_mib": 100000, "free_mib": 20000, "keep_free": "",
            "stacks": [{"stack": "a", "share": 0.4, "kv_cache": None, "mib": 39000},
                       {"stack": "b", "share": None, "kv_cache": 6 << 30, "mib": 20000}],
            "foreign": [{"pid": 4711, "name": "python3", "mib": 14000}],
        },
        {"index": 0, "stacks": [], "foreign": [], "keep_free": "for experiments"},
    ],
    stacks=[
        stack("a", status="exited", step="start", receipt=RECEIPT),
        stack("b", status="running", step="recreate", receipt={}, failure={"at": "broken", "code": "race"}),
    ],
)  # fmt: skip
UNSEEN = report(
    "ana-away", "unknown", trouble=[finding("unreachable", "ana-away", "cannot be reached.")], stacks=[stack("c")]
)
FLEET = [DRIFTED, GOOD, UNSEEN]


@pytest.mark.parametrize(
    ("reports", "status", "exit_status"),
    [
        ([], "none", 0),
        ([GOOD], "none", 0),
        ([GOOD, DRIFTED], "drift", 2),
        ([UNSEEN, GOOD], "unknown", 4),
        (FLEET, "unknown", 4),  # a host that nobody saw is not as good as one that is known to be wrong
    ],
)
def test_status(reports: list[dict[str, Any]], status: str, exit_status: int) -> None:
    data = drift_report.as_json(reports, NOW)
    assert (data["status"], data["exit_status"]) == (status, exit_status)
    json.dumps(data)


def test_text_names_host_stack_item_want_and_have() -> None:
    lines = drift_report.text(FLEET)
    assert lines[:2] == ["ana-ml2: 4 differences", "  host"]
    assert "    environment HF_HOME  want /hub  have /tmp  (a run replaces the container)" in lines
    assert [line for line in lines if re.fullmatch(r"  \w+", line)] == ["  host", "  a", "  b"]
    assert any("cannot look: cannot be reached. Do something. [unreachable]" in line for line in lines)
    assert lines[-1] == (
        "1 of 3 hosts as the inventory wants; 4 differences on ana-ml2; could not look at all of ana-away"
    )
    assert drift_report.text([GOOD]) == ["1 of 1 host as the inventory wants"]


def test_a_long_value_is_wrapped_and_cut() -> None:
    long = report("h", "drift", differences=[difference("stack", "a", "command", "x " * 900, "y")])
    assert max(map(len, drift_report.text([long]))) <= drift_report.WIDTH
    assert len(drift_report.text([long])) < 12


def test_junit_is_what_ci_reads() -> None:
    root = ElementTree.fromstring(drift_report.junit(FLEET))
    suites = {suite.get("name"): suite for suite in root}
    assert [(suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in suites.values()] == [
        ("3", "3", "0"),
        ("2", "0", "0"),
        ("3", "0", "1"),
    ]
    failures = {case.get("name"): case.find("failure") for case in suites["ana-ml2"]}
    found = failures["b"]
    assert found is not None
    assert found.get("message") == "2 differences: environment HF_HOME, ports"
    assert found.text == "environment HF_HOME: want /hub, have /tmp\nports: want 8000, have 8001"
    error = suites["ana-away"].find("testcase/error")
    assert error is not None
    assert error.get("type") == "unreachable"


def hostile(value: Any) -> Any:
    """Every text in it replaced, but those that the code itself decides."""
    if isinstance(value, dict):
        kept = ("status", "action", "part", "at", "severity")
        return {key: item if key in kept else hostile(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


class Page(HTMLParser):
    """Refuses what is not closed, and keeps every tag and every text."""

    EMPTY = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, Optional[str]]]] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        assert len({name for name, _value in attrs}) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1:] == [tag]
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.said += data


def read(reports: list[dict[str, Any]]) -> Page:
    page = Page()
    page.feed(drift_page.page(reports, NOW))
    page.close()
    assert page.open == []
    return page


@pytest.mark.parametrize(
    "reports", [[], [GOOD], FLEET, hostile(copy.deepcopy(FLEET))], ids=["none", "good", "fleet", "hostile"]
)
def test_the_page_is_whole_and_refers_to_nothing_outside(reports: list[dict[str, Any]]) -> None:
    page = read(reports)
    tags = {tag for tag, _attributes in page.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "form", "svg"}
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "data", "action", "onload", "onerror"} & set(attributes), tag
        assert tag != "a" or str(attributes["href"]).startswith("#host-")
        style = attributes.get("style") or ""
        assert re.fullmatch(r"(width:[\d.]+%)?", style)
    raw = drift_page.page(reports, NOW)
    assert not re.search(r"url\(|@import|https?://", raw.replace("http://127.0.0.1:8007", ""))
    assert len([tag for tag, _attributes in page.tags if tag == "section"]) == len(reports)
    ids = [attributes["id"] for _tag, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_page_shows_what_a_person_wants_to_know() -> None:
    page = read(FLEET)
    for said in (
        "4 differences", "environment HF_HOME", "/hub", "/tmp", "Never answered", "Last run failed",
        "Answered 9 of 9 questions", "kept free".capitalize(), "for experiments", "python3 (pid 4711) 13.7 GiB",
        "Could not look: ana-away", "not seen", "1 routes", "ana-ml2--a", "KV cache 751,696 tokens",
    ):  # fmt: skip
        assert said in page.said, said
    labels = [attributes["aria-label"] for _tag, attributes in page.tags if "aria-label" in attributes]
    assert (
        "GPU 1: a share 0.40, 38.1 GiB held; b 19.5 GiB held; python3 (pid 4711) 13.7 GiB, not of the inventory"
        in labels
    )


def test_what_somebody_wrote_on_a_host_stays_text() -> None:
    raw = drift_page.page(hostile(copy.deepcopy(FLEET)), NOW)
    assert "<script" not in raw
    assert "<img" not in raw
    assert "&lt;script&gt;" in raw
    ElementTree.fromstring(drift_report.junit(hostile(copy.deepcopy(FLEET))))
    assert "\x1b" not in "".join(drift_report.text(hostile(copy.deepcopy(FLEET))))
    raw.encode("utf-8")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "just now"), (60, "1 minute ago"), (7200, "2 hours ago"), (3 * 86400, "3 days ago"), (-50, "just now")],
)
def test_age(seconds: int, said: str) -> None:
    there = copy.deepcopy(DRIFTED)
    there["stacks"][0]["receipt"]["at"] = drift_report.stamp(NOW - seconds).replace(":", "")
    assert f"questions {said}." in read([there]).said
