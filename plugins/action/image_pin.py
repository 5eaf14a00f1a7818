# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pin images anew: one question to a host's engine, one surgical edit of the inventory's files."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.fleet import pinning
from ..module_utils.fleet.errors import FleetError
from ..plugin_utils import hostvars, image_places
from ..plugin_utils.replace_file import replace

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            {
                "hosts": {"type": "list", "elements": "str", "required": True},
                "only": {"type": "list", "elements": "str", "default": []},
            }
        )
        try:
            # The other variables of the fleet may need a vault that nobody needs here.
            raw = hostvars.collect(task_vars["hostvars"], options["hosts"], names=("fleet_images",))
            pins = pinning.pins(raw, options["only"])
        except FleetError as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        looked = self._look(pins, task_vars)
        if isinstance(looked, dict):
            return looked
        verdicts = [pinning.Verdict(pin, found) for pin, found in zip(pins, looked)]
        # Standard error: standard output belongs to the callback, which may print JSON there.
        display.display("\n".join(["", *pinning.lines(verdicts), ""]), stderr=True)

        paths = image_places.files(task_vars.get("ansible_inventory_sources") or (), task_vars["playbook_dir"])
        texts, unread, found = {}, [], []
        for path in paths:
            try:
                texts[str(path)] = image_places.read(path)
            except (OSError, UnicodeDecodeError):
                continue
            if texts[str(path)].startswith("$ANSIBLE_VAULT"):
                unread.append(os.path.relpath(path))
            found += image_places.places(texts[str(path)], str(path))
        edits, problems = _edits(verdicts, found, unread)
        old = {path: texts[path] for path in sorted({place.path for place in edits})}
        new = {
            path: image_places.replaced(text, {place: to for place, to in edits.items() if place.path == path})
            for path, text in old.items()
        }
        result: dict[str, Any] = {
            "changed": bool(new) and not problems,
            "images": [verdict.as_dict() for verdict in verdicts],
            "files": [os.path.relpath(path) for path in new],
        }
        if self._task.diff and not problems:
            result["diff"] = []
            for path, text in new.items():
                before, after = image_places.changed_lines(old[path], text)
                name = os.path.relpath(path)
                result["diff"].append({"before": before, "after": after, "before_header": name, "after_header": name})
        if problems:
            wrote = " Nothing was written." if edits else ""
            return {**result, "failed": True, "msg": "\n".join(problems) + wrote}
        if new and not self._task.check_mode:
            try:
                replace(new)
            except OSError as error:
                return {**result, "failed": True, "changed": False, "msg": f"{error.filename}: {error.strerror}"}
        return result

    def _look(self, pins: list[pinning.Pin], task_vars: Any) -> list[pinning.Looked] | dict[str, Any]:
        """What the host found about each; a failed result when its engine cannot be asked at all."""
        asked = [pin for pin in pins if pin.tag]
        answers: list[dict[str, Any]] = []
        if asked:
            arguments = {
                "host": task_vars["inventory_hostname"],
                "images": [{"repository": pin.repository, "tag": pin.tag, "tags": bool(pin.watch)} for pin in asked],
            }
            result: dict[str, Any] = self._execute_module(
                "modelfleet.inference.image_lookup", arguments, task_vars=task_vars
            )
            if result.get("failed") or "images" not in result:
                return result
            answers = result["images"]
        of = {pin: pinning.Looked(**{**each, "tags": tuple(each["tags"])}) for pin, each in zip(asked, answers)}
        untagged = pinning.Looked(error="it has no tag, so there is nothing to resolve", tags_error="it has no tag")
        return [of.get(pin, untagged) for pin in pins]


def _edits(
    verdicts: list[pinning.Verdict], found: list[image_places.Place], unread: list[str]
) -> tuple[dict[image_places.Place, str], list[str]]:
    """(what to write where, why something cannot be written or resolved)."""
    edits: dict[image_places.Place, str] = {}
    problems = []
    for verdict in verdicts:
        pin = verdict.pin
        if verdict.looked.error:
            if pin.tag:
                problems.append(f"{pin.name}: {pin.reference} was not resolved: {verdict.looked.error}.")
            continue
        if not verdict.moved:
            continue
        places = image_places.fitting(found, pin.name, pin.repository, pin.digest)
        refused = [place for place in places if place.refusal]
        if places and not refused:
            for place in places:
                if edits.setdefault(place, verdict.looked.digest) != verdict.looked.digest:
                    problems.append(f"{place.where}: two different digests would have to stand there.")
            continue
        remedy = f"Write digest: {verdict.looked.digest} there yourself."
        if refused:
            problems += [
                f"{os.path.relpath(place.path)}:{place.line}: the digest of {pin.name} is not written: "
                f"{place.refusal}. {remedy}"
                for place in refused
            ]
            continue
        hidden = f" It may be in {', '.join(unread)}, encrypted by Ansible Vault." if unread else ""
        problems.append(f"{pin.name}: no file of this inventory gives it the digest {pin.digest}.{hidden} {remedy}")
    return edits, problems
