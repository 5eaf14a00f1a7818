# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One scalar of a file changes and not another byte, or it is said why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from ansible_collections.modelfleet.inference.plugins.plugin_utils import image_places
from ansible_collections.modelfleet.inference.plugins.plugin_utils.replace_file import replace

OLD, NEW = "sha256:49211ab2", "sha256:" + "a1" * 32
KEEPING = {
    "plain, with comments": "# top\nfleet_images:\n  vllm:   # the engine\n    repository: r/v\n"
    "    digest: {}   # old\n    engine: 0.33.0\n",
    "single quotes": "fleet_images:\n  vllm: {{repository: r/v, tag: x, digest: '{}', engine: 1.0}}\n",
    "double quotes and odd order": "a: [1,\n  2]\n"
    'fleet_images: {{vllm: {{digest: "{}"   , repository:   r/v }} }}\nz: ~\n',
    "windows line ends": "fleet_images:\r\n  vllm:\r\n    repository: r/v\r\n    digest: {}\r\n# end\r\n",
    "no line end": "fleet_images:\n  vllm:\n    repository: r/v\n    digest: {}",
    "a mark before the first byte": "\ufefffleet_images:\n  vllm:\n    repository: r/v\n    digest: {}\n",
    "letters of other languages": "# Größe, 大小 🚀\nfleet_images:\n  vllm:\n    watch: größer 🚀\n"
    "    repository: r/v\n    digest: {} # ü\n",
    "inside an inventory": "all:\n  vars:\n    fleet_images:\n"
    "      vllm: {{repository: r/v, digest: {}}}\n  hosts: {{a: }}\n",
    "two documents' worth of dashes": "---\nfleet_images:\n  vllm:\n    digest: {}\n    repository: r/v\n...\n",
    "the same text elsewhere": "old: {0}\nfleet_images:\n  vllm: {{repository: r/v, digest: {0}}}  # was {0}\n",
    "json": '{{"fleet_images": {{"vllm": {{"repository": "r/v", "digest": "{}"}}}}}}',
}
REFUSED = {
    "fleet_images:\n  vllm: {repository: r/v, digest: '{{ d }}'}\n": "it is a template: {{ d }}",
    "fleet_images: '{{ all_images }}'\n": "it is a template: {{ all_images }}",
    "fleet_images:\n  vllm: '{{ image }}'\n": "it is a template: {{ image }}",
    "fleet_images:\n  vllm:\n    repository: r/v\n    digest: !vault |\n"
    "      $ANSIBLE_VAULT;1.1;AES256\n      6162\n": "it is encrypted by Ansible Vault",
    "fleet_images:\n  vllm:\n    repository: r/v\n    digest: >-\n      sha256:1\n": "it is a block of lines",
    "fleet_images:\n  vllm: {repository: r/v, digest: &d sha256:1}\n": "written with an anchor",
    'fleet_images:\n  vllm: {repository: r/v, digest: "sha256\\x3a1"}\n': "an anchor, a tag or an escape",
    "a: &d sha256:1\nfleet_images:\n  o: {repository: r/o, digest: *d}\n"
    "  vllm: {repository: r/v, digest: *d}\n": "share it",
    "b: &b {digest: sha256:1}\nfleet_images:\n  vllm: {<<: *b, repository: r/v, tag: x}\n": "the anchor behind <<",
    "fleet_images:\n  o: &o {repository: r/v, digest: sha256:1}\n  vllm: *o\n": "two entries share it",
    "fleet_images:\n  vllm: {repository: r/v}\n": "no tag that could be resolved",
}


@pytest.mark.parametrize("text", KEEPING.values(), ids=list(KEEPING))
def test_nothing_but_the_digest_changes(text: str, tmp_path: Path) -> None:
    path = tmp_path / "images.yml"
    path.write_bytes(text.format(OLD).encode())
    found = image_places.places(image_places.read(path), str(path))
    [place] = image_places.fitting(found, "vllm", "r/v", OLD)
    replace({str(path): image_places.replaced(image_places.read(path), {place: NEW})})
    wanted = text.format(NEW)
    if "{0}" in text:  # only the one behind the key
        wanted = text.format(OLD).replace(f"digest: {OLD}", f"digest: {NEW}")
    assert path.read_bytes() == wanted.encode()
    assert path.read_text(encoding="utf-8").split("\n")[place.line - 1].count(NEW) == 1


@pytest.mark.parametrize("text", REFUSED)
def test_a_digest_that_does_not_stand_there_is_refused(text: str) -> None:
    found = image_places.places(text, "f.yml")
    refused = image_places.fitting(found, "vllm", "r/v", "sha256:1")
    assert [place.refusal for place in refused if REFUSED[text] in place.refusal] == [refused[0].refusal]
    assert 0 < refused[0].line <= text.count("\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "fleet_images:\n  vllm:\n    repository: r/v\n    tag: nightly   # moves\n    engine: 1.0\n",
            f"fleet_images:\n  vllm:\n    repository: r/v\n    tag: nightly   # moves\n"
            f"    digest: {NEW}\n    engine: 1.0\n",
        ),
        (
            "fleet_images:\n  vllm:\n    tag: x\n    repository: r/v",
            f"fleet_images:\n  vllm:\n    tag: x\n    digest: {NEW}\n    repository: r/v",
        ),
        (
            "fleet_images:\n  vllm:\n    repository: r/v\n    tag: x",
            f"fleet_images:\n  vllm:\n    repository: r/v\n    tag: x\n    digest: {NEW}",
        ),
        (
            "fleet_images:\r\n  vllm:\r\n    repository: r/v\r\n    tag: x\r\n",
            f"fleet_images:\r\n  vllm:\r\n    repository: r/v\r\n    tag: x\r\n    digest: {NEW}\r\n",
        ),
        (
            '{"fleet_images": {"vllm": {"tag": "x", "repository": "r/v"}}}',
            f'{{"fleet_images": {{"vllm": {{"tag": "x", "digest": "{NEW}", "repository": "r/v"}}}}}}',
        ),
        (
            "fleet_images: {vllm: {tag: x, repository: r/v}}\n",
            f'fleet_images: {{vllm: {{tag: x, digest: "{NEW}", repository: r/v}}}}\n',
        ),
    ],
)
def test_an_image_without_a_digest_gets_one_behind_its_tag(text: str, wanted: str) -> None:
    [place] = image_places.fitting(image_places.places(text, "f.yml"), "vllm", "r/v", "")
    new = image_places.replaced(text, {place: NEW})
    assert new == wanted
    before, after = (yaml.safe_load(each)["fleet_images"]["vllm"] for each in (text, new))
    assert after == {**before, "digest": NEW}


def test_the_diff_has_the_changed_lines_only() -> None:
    text = f"other: a secret\nfleet_images:\n  v: {{digest: {OLD}}}\nmore: of it\n"
    assert image_places.changed_lines(text, text.replace(OLD, NEW)) == (
        f"  v: {{digest: {OLD}}}\n",
        f"  v: {{digest: {NEW}}}\n",
    )


def test_all_files_are_replaced_or_none(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "link").symlink_to("a")
    replace({str(tmp_path / "link"): "new", str(tmp_path / "b"): "new"})
    assert (tmp_path / "link").is_symlink()
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["new", "new"]
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o640

    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="irectory"):
        replace({str(tmp_path / "a"): "newer", str(tmp_path / "b" / "no" / "folder"): "newer"})
    assert (tmp_path / "a").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "folder", "link"]


def test_files_are_looked_for_where_ansible_does(tmp_path: Path) -> None:
    names = ["inv/hosts.yml", "inv/group_vars/all/x.yml", "inv/host_vars/h.yaml", "inv/group_vars/.hidden.yml"]
    names += ["inv/group_vars/notes.md", "inv/roles/x.yml", "play/group_vars/all", "play/other.yml"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    found = image_places.files([str(tmp_path / "inv" / "hosts.yml"), "a,b"], str(tmp_path / "play"))
    assert {str(path.relative_to(tmp_path)) for path in found} == {
        "inv/hosts.yml", "inv/group_vars/all/x.yml", "inv/host_vars/h.yaml", "play/group_vars/all"
    }  # fmt: skip
