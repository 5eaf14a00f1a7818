#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/diagnosis.md from the table of known failures; with --check, only say whether it is up to date."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import known_failures  # noqa: E402

TARGET = ROOT / "docs" / "diagnosis.md"

HEAD = """\
<!-- Written by tools/diagnosis_doc.py from plugins/module_utils/fleet/known_failures.py; do not edit. -->
# Known failures

A rollout, `vllm_health`, the filter and `playbooks/diagnose.yml` explain failures by this table. Codes are stable.

    ansible localhost -m debug -a "msg={{ lookup('file', 'x.log') | modelfleet.inference.diagnose }}"
    ansible-playbook playbooks/diagnose.yml

- Values in *italics* are read from the log, or are the engine's options.
- **warning**: a note; the start goes on. **once more**: the same settings may work on a second try.
- A specific finding hides the general ones (marked *general*), wherever in the log they stand.
- Rows without a report come from the engine's and Docker's own messages.
- What is not in the table is `unknown_failure`: the engine's last error lines and the exit code. A container that the
  kernel killed is `container_oom_killed`; one that Docker starts again and again is `restart_loop`, with the reason of
  its first attempt.
- A log that is not understood is a missing row: add it to `known_failures.py` and the line to
  `tests/fixtures/failures/reported.yml`.

| Code | Why | What to change | Reports |
| --- | --- | --- | --- |
"""


def plain(template: str) -> str:
    """The fullest text of a template: the first alternative of each optional part."""
    text = re.sub(r"\[([^\[\]|]*)[^\[\]]*\]", r"\1", template)
    return re.sub(r"\{(\w+)\}", r"*\1*", text).replace("|", "\\|")


def row(known: known_failures.Known) -> str:
    marks = []
    if known.severity == known_failures.WARNING:
        marks.append("**warning**")
    if known.retryable:
        marks.append("**once more**")
    if known.rank != known_failures.SPECIFIC:
        marks.append("*general*")
    code = " ".join([f"`{known.code}`", *marks])
    reports = " ".join(f"[{number}]({address})" for number, address in enumerate(known.source, 1))
    return f"| {code} | {plain(known.cause)} | {plain(known.remedy)} | {reports} |\n"


def main() -> int:
    rows = dict.fromkeys(row(known) for known in sorted(known_failures.TABLE, key=lambda known: known.code))
    text = HEAD + "".join(rows)
    if sys.argv[1:] == ["--check"]:
        if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{TARGET.relative_to(ROOT)} is not up to date: run tools/diagnosis_doc.py", file=sys.stderr)
        return 1
    if sys.argv[1:]:
        print("usage: tools/diagnosis_doc.py [--check]", file=sys.stderr)
        return 2
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
