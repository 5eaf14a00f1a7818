# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pinned images have moved since, and which releases came after the one that is pinned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Optional, Sequence

from . import inventory
from .errors import Finding, FleetError

RELEASE = re.compile(r"v?(\d+(?:\.\d+)+)(?:\.post(\d+))?")
SHOWN_RELEASES = 3


@dataclass(frozen=True)
class Pin:
    """One entry of ``fleet_images`` as some hosts see it."""

    name: str
    repository: str
    tag: str
    digest: str  # as it stands in the inventory; empty: none yet
    engine: str
    watch: str
    hosts: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        return f"{self.repository}:{self.tag}"


@dataclass(frozen=True)
class Looked:
    """What was found out about one reference. ``error``: why the tag could not be resolved."""

    digest: str = ""
    created: str = ""
    error: str = ""
    tags: tuple[str, ...] = ()
    tags_error: str = ""


@dataclass(frozen=True)
class Verdict:
    pin: Pin
    looked: Looked

    @property
    def moved(self) -> bool:
        return bool(self.looked.digest) and self.looked.digest != self.pin.digest

    @property
    def newer(self) -> tuple[str, ...]:
        return releases_after(self.pin.engine or self.pin.tag, self.looked.tags)

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.pin.name,
            "reference": self.pin.reference,
            "old": self.pin.digest,
            "new": self.looked.digest,
            "created": self.looked.created,
            "moved": self.moved,
            "watch": self.pin.watch,
            "newer_releases": list(self.newer),
            "error": self.looked.error,
        }


def pins(raw: Mapping[str, Mapping[str, Any]], only: Sequence[str] = ()) -> list[Pin]:
    """Every different entry of the hosts' ``fleet_images``, by name. FleetError when one is not even in shape."""
    found: dict[Pin, list[str]] = {}
    for host, variables in raw.items():
        images = {"fleet_images": variables.get("fleet_images")}
        fleet = inventory.parse({host: images}, gpu_hosts=[host], gateways=[])
        for image in fleet.images.values():
            pin = Pin(image.name, image.repository, image.tag, image.digest, image.engine, image.watch)
            found.setdefault(pin, []).append(host)
    names = {pin.name for pin in found}
    unknown = [name for name in only if name not in names]
    if unknown:
        remedy = f"Known: {', '.join(sorted(names)) or 'none'}."
        raise FleetError([Finding("unknown_image", "only", f"names {', '.join(unknown)}.", remedy)])
    return [Pin(**{**vars(pin), "hosts": tuple(hosts)}) for pin, hosts in found.items() if not only or pin.name in only]


def releases_after(version: str, tags: Iterable[str]) -> tuple[str, ...]:
    """Tags that name a release newer than ``version``, the newest first; none when ``version`` is not one."""
    here = _number(version)
    if here is None:
        return ()
    later = {number: tag for tag in sorted(tags) if (number := _number(tag)) is not None and number > here}
    return tuple(later[number] for number in sorted(later, reverse=True))


def _number(text: str) -> Optional[tuple[tuple[int, ...], int]]:
    """A version to compare. Candidates, nightlies and builds for one platform are none."""
    match = RELEASE.fullmatch(text)
    if not match:
        return None
    parts = [int(part) for part in match[1].split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts), int(match[2] or 0)


def lines(verdicts: Sequence[Verdict]) -> list[str]:
    """What a person is shown, one block an image."""
    said = []
    for verdict in verdicts:
        pin, looked = verdict.pin, verdict.looked
        head = f"{pin.name}  {pin.reference}"
        if looked.error:
            said.append(f"{head}  NOT RESOLVED: {looked.error}")
        elif not verdict.moved:
            said.append(f"{head}  unchanged  {pin.digest}")
        else:
            said += [f"{head}  {'moved' if pin.digest else 'not pinned yet'}", f"  old  {pin.digest or '(none)'}"]
            said.append(f"  new  {looked.digest}" + (f"  created {looked.created[:19]}" if looked.created else ""))
            if pin.engine:
                said.append(f"  engine: {pin.engine} describes the old digest: look whether it is still true.")
        if pin.watch:
            said += [f"  watch: {pin.watch}", f"         {_watched(verdict)}"]
    return said


def _watched(verdict: Verdict) -> str:
    """What can be checked of a note that is written for people: whether anything came that it may wait for."""
    pin, looked = verdict.pin, verdict.looked
    moved = "" if looked.error else "the tag has moved; " if verdict.moved else "the tag has not moved; "
    if looked.tags_error:
        return f"{moved}releases unknown: {looked.tags_error}"
    if not _number(pin.engine or pin.tag):
        return f"{moved}releases unknown: neither engine nor tag is a version to compare with"
    newest = verdict.newer[:SHOWN_RELEASES]
    if not newest:
        return f"{moved}no release after {pin.engine or pin.tag} in the registry"
    more = f" and {len(verdict.newer) - len(newest)} more" if len(verdict.newer) > len(newest) else ""
    return f"{moved}newer than {pin.engine or pin.tag}: {', '.join(newest)}{more}"
