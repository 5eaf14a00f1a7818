# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the run's output already has on the screen."""

from __future__ import annotations

from ansible import constants as C
from ansible.utils.display import Display


def brief() -> bool:
    """Whether the callback would repeat all data of a failed result below its message; with -v it is asked to."""
    return Display().verbosity == 0 and C.config.get_config_value("DEFAULT_STDOUT_CALLBACK") in (
        "default",
        "ansible.builtin.default",
    )
