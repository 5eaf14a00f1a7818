# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at a host reads out of its files."""

from __future__ import annotations

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import host

RELEASES = {
    "Debian 12": (
        'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
        ("debian", "12", "bookworm", "apt"),
    ),
    "Ubuntu 22.04": (
        'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\n',
        ("ubuntu", "22.04", "jammy", "apt"),
    ),
    "Rocky 9": (
        'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n',
        ("rocky", "9.6", "", "dnf"),
    ),
    "RHEL 9": ('ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.6"\n', ("rhel", "9.6", "", "dnf")),
    "Arch": ("ID=arch\n", ("arch", "", "", "")),
}


@pytest.mark.parametrize(("text", "facts"), RELEASES.values(), ids=RELEASES)
def test_system(tmp_path, text, facts):
    (tmp_path / "os-release").write_text(text)
    found = host.system(str(tmp_path / "os-release"))
    assert (found.id, found.version, found.codename, found.manager) == facts
    assert found.arch


YAML = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {{}}
- name: GPU-1
  containerEdits: {{}}
containerEdits:
  mounts:
  - hostPath: {path}
    containerPath: /usr/lib/libcuda.so.1
"""
JSON = '{{"kind": "nvidia.com/gpu", "devices": [{{"name": "0"}}], "x": {{"hostPath": "{path}", "y": 1}}}}'
OTHER = "kind: vendor.com/nic\ndevices:\n- name: eth9\n"


@pytest.mark.parametrize(
    ("first", "second", "names", "stale"),
    [
        pytest.param({}, {}, set(), False, id="nothing"),
        pytest.param({"nvidia.yaml": (YAML, True)}, {}, {"0", "GPU-1"}, False, id="whole"),
        pytest.param({"nvidia.yaml": (YAML, False)}, {}, {"0", "GPU-1"}, True, id="a library of before the update"),
        pytest.param({"nvidia.json": (JSON, True)}, {}, {"0"}, False, id="JSON"),
        pytest.param({"nvidia.json": (JSON, False)}, {}, {"0"}, True, id="JSON, stale"),
        pytest.param({"other.yaml": (OTHER, True), "notes.txt": (YAML, False)}, {}, set(), False, id="not ours"),
        pytest.param(
            {"nvidia.yaml": (YAML, False)}, {"nvidia.yaml": (YAML, True)}, {"0", "GPU-1"}, False, id="hidden by a fresh"
        ),
        pytest.param(
            {"nvidia.yaml": (YAML, False)}, {"nvidia.json": (JSON, True)}, {"0", "GPU-1"}, True, id="hidden in part"
        ),
        pytest.param({"nvidia.yaml": (YAML, True)}, {"nvidia.yaml": (YAML, False)}, {"0", "GPU-1"}, True, id="hides"),
    ],
)
def test_cdi(tmp_path, first, second, names, stale):
    here = tmp_path / "libcuda.so.1"
    here.touch()
    folders = []
    for folder, files in (("etc", first), ("run", second)):
        (tmp_path / folder).mkdir()
        folders.append(str(tmp_path / folder))
        for name, (text, whole) in files.items():
            (tmp_path / folder / name).write_text(text.format(path=here if whole else f"{here}.gone"))
    found, missing = host._cdi(folders)
    assert set(found) == names
    assert missing == (f"{here}.gone" if stale else "")


def test_waiting_ends_with_what_it_waits_for_or_with_its_limit():
    answers, slept = iter([False, False, True]), []
    assert host.wait_until(lambda: next(answers), 60, slept.append)
    assert len(slept) == 2
    assert not host.wait_until(lambda: False, 1, slept.append)
    assert sum(slept[2:]) == 1
