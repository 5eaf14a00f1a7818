# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that make a package manager know a repository, its one key, and the version that is held."""

from __future__ import annotations

from typing import Sequence

PIN_PRIORITY = 990  # above every other version in any repository, below a downgrade


def rendered(
    manager: str,
    name: str,
    url: str,
    suites: Sequence[str],
    components: Sequence[str],
    key: str,
    sign_packages: bool,
    pin: Sequence[str],
    pin_version: str,
) -> dict[str, str]:
    """Path -> text, the key first: a source never names a key that is not there yet."""
    if manager == "dnf":
        path = f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{name}"
        text = (
            f"# Written by modelfleet.inference\n[{name}]\nname={name}\nbaseurl={url}\nenabled=1\n"
            f"gpgcheck={int(sign_packages)}\nrepo_gpgcheck={int(not sign_packages)}\ngpgkey=file://{path}\n"
        )
        return {path: key, f"/etc/yum.repos.d/{name}.repo": text}
    path = f"/etc/apt/keyrings/{name}.asc"
    source = f"# Written by modelfleet.inference\nTypes: deb\nURIs: {url}\nSuites: {' '.join(suites)}\n"
    if components:
        source += f"Components: {' '.join(components)}\n"
    files = {path: key, f"/etc/apt/sources.list.d/{name}.sources": f"{source}Signed-By: {path}\n"}
    if pin:
        files[f"/etc/apt/preferences.d/{name}"] = (
            f"# Written by modelfleet.inference\nPackage: {' '.join(pin)}\nPin: version {pin_version}\n"
            f"Pin-Priority: {PIN_PRIORITY}\n"
        )
    return files
