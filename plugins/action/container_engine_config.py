# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows on the controller's terminal what container_engine_config warns of; the work is the module's."""

from __future__ import annotations

from ..plugin_utils.warns import ActionThatWarns


class ActionModule(ActionThatWarns):
    pass
