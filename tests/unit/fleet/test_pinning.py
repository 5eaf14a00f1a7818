# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import pinning
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError

OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64
PIN = pinning.Pin("vllm", "vllm/vllm-openai", "nightly", OLD, "0.19.2", "re-pin to a release", ("ana-ml2",))


@pytest.mark.parametrize(
    ("version", "tags", "newer"),
    [
        ("0.19.2", ["v0.19.1", "v0.19.2", "v0.20.0", "v0.9.9", "v0.100.0"], ("v0.100.0", "v0.20.0")),
        ("0.19.2", ["v0.20.0rc1", "nightly", "latest", "v0.20.0-cu129", "0.20", "sha-1"], ("0.20",)),
        ("0.19.2", ["v0.19.2.post1"], ("v0.19.2.post1",)),
        ("0.19.2.post1", ["v0.19.2", "v0.19.2.post2"], ("v0.19.2.post2",)),
        ("v1.2.0", ["1.2", "1.2.0", "1.2.1", "v1.2.1"], ("v1.2.1",)),
        ("nightly", ["v0.20.0"], ()),
        ("", ["v0.20.0"], ()),
    ],
)
def test_only_releases_are_newer_than_a_release(version: str, tags: list[str], newer: tuple[str, ...]) -> None:
    assert pinning.releases_after(version, tags) == newer


@pytest.mark.parametrize(
    ("looked", "shown"),
    [
        (pinning.Looked(OLD), ["unchanged", "has not moved", "no release after 0.19.2"]),
        (
            pinning.Looked(NEW, "2026-11-20T04:11:09.123Z"),
            ["moved", f"old  {OLD}", f"new  {NEW}  created 2026-11-20T04:11:09", "engine: 0.19.2", "the tag has moved"],
        ),
        (
            pinning.Looked(NEW, tags=("v0.20.0", "v0.21.0", "v0.22.0", "v0.23.0")),
            ["newer than 0.19.2: v0.23.0, v0.22.0, v0.21.0 and 1 more"],
        ),
        (pinning.Looked(OLD, tags_error="registry answers 401"), ["releases unknown: registry answers 401"]),
        (pinning.Looked(error="manifest unknown"), ["NOT RESOLVED: manifest unknown"]),
    ],
)
def test_what_a_person_is_shown(looked: pinning.Looked, shown: list[str]) -> None:
    text = "\n".join(pinning.lines([pinning.Verdict(PIN, looked)]))
    for part in shown:
        assert part in text
    assert PIN.watch in text


def test_an_image_that_was_never_pinned_says_so() -> None:
    pin = dataclasses.replace(PIN, digest="", watch="", engine="")
    [head, old, new] = pinning.lines([pinning.Verdict(pin, pinning.Looked(NEW))])
    assert ("not pinned yet" in head, "(none)" in old, NEW in new) == (True, True, True)


def test_each_different_entry_is_asked_for_once() -> None:
    image: dict[str, Any] = {"repository": "vllm/vllm-openai", "tag": "nightly", "digest": OLD, "engine": "0.19.2"}
    raw = {
        "ana-ml2": {"fleet_images": {"vllm": image}},
        "ana-ml3": {"fleet_images": {"vllm": dict(image)}},
        "ana-ml4": {"fleet_images": {"vllm": {**image, "digest": NEW}}},
        "ana-docker": {},
    }
    found = pinning.pins(raw)
    assert [(pin.digest, pin.hosts) for pin in found] == [(OLD, ("ana-ml2", "ana-ml3")), (NEW, ("ana-ml4",))]
    assert pinning.pins(raw, ["vllm"]) == found
    with pytest.raises(FleetError, match=r"names vlm\. Known: vllm"):
        pinning.pins(raw, ["vlm"])
