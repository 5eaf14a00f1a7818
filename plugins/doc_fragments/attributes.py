# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module says about check mode, diff mode and repeated runs, worded once."""

from __future__ import annotations


class ModuleDocFragment:
    # Modules state support and details themselves; the meaning of the words stands here.
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return the changed status it would have without changing the target.
  diff_mode:
    description: Returns what has changed, or would change in C(check_mode), when in diff mode.
  idempotent:
    description: When run twice in a row with the same arguments, the second run does nothing and reports no change.
"""

    # For modules that only look.
    INFO = r"""
options: {}
attributes:
  check_mode:
    support: full
    details:
      - Only looks, and so does the same in check mode.
  diff_mode:
    support: N/A
    details:
      - Only looks, so there is no before and after.
  idempotent:
    support: full
    details:
      - Never reports a change.
"""
