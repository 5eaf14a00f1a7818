# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that explains a log; its documentation is in diagnose.yml."""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Sequence, Union

from ansible.errors import AnsibleFilterError
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.diagnosis import diagnose as explain


def diagnose(
    log: Union[str, Sequence[str]],
    exit_code: Optional[int] = None,
    oom_killed: bool = False,
    restarts: int = 0,
    options: Optional[Mapping[str, Any]] = None,
) -> list[dict[str, Any]]:
    if not isinstance(log, (str, list, tuple)):
        raise AnsibleFilterError(
            f"diagnose wants the text of a log or a list of its lines, not {type(log).__name__}. "
            "Use it like lookup('file', 'x.log') | modelfleet.inference.diagnose"
        )
    lines = log if isinstance(log, str) else [str(line) for line in log]
    found = explain(lines, exit_code=exit_code, oom_killed=oom_killed, restarts=restarts, options=options)
    return [one.as_dict() for one in found]


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"diagnose": diagnose}
