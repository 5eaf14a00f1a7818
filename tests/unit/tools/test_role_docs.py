# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml

from tools import role_docs

SPEC = """
argument_specs:
  main:
    short_description: Write a file
    description: [Writes it.]
    options:
      writer_path:
        type: path
        default: /etc/x
        description: Where it goes, see O(writer_mode).
      writer_mode:
        type: str
        required: true
        choices: [a, b]
        description: [How it is opened., A second paragraph.]
      writer_parts:
        type: list
        elements: dict
        default: [{name: one}]
        description: What it consists of.
        options:
          name:
            type: str
            description: Name | of the part.
"""
TASKS = "- debug:\n    msg: '{{ writer_path }} {{ writer_mode }} {{ writer_parts }} {{ __writer_x }}'\n"


@pytest.fixture
def role(tmp_path):
    folder = tmp_path / "writer"
    for part, text in {"meta/argument_specs.yml": SPEC, "tasks/main.yml": TASKS}.items():
        (folder / part).parent.mkdir(parents=True)
        (folder / part).write_text(text)
    return folder


def test_written_once_then_nothing_differs(role):
    assert role_docs.follow(role, check=False) == []
    assert role_docs.follow(role, check=True) == []


def test_check_writes_nothing_and_names_both_files(role):
    complaints = role_docs.follow(role, check=True)
    assert len(complaints) == 2
    assert "defaults/main.yml" in complaints[0]
    assert "README.md" in complaints[1]
    assert not (role / "README.md").exists()
    assert not (role / "defaults").exists()


def test_defaults_hold_exactly_the_defaults_with_their_types(role):
    role_docs.follow(role, check=False)
    text = (role / "defaults/main.yml").read_text()
    assert yaml.safe_load(text) == {"writer_path": "/etc/x", "writer_parts": [{"name": "one"}]}
    assert "# Where it goes, see writer_mode.\n" in text
    assert "\n  - name: one\n" in text


def test_a_changed_default_is_noticed(role):
    role_docs.follow(role, check=False)
    (role / "defaults/main.yml").write_text("writer_path: /etc/y\n")
    assert role_docs.follow(role, check=True) == [
        "writer: defaults/main.yml does not follow the spec. Run tools/role_docs.py."
    ]


def test_readme_keeps_what_people_wrote(role):
    role_docs.follow(role, check=False)
    readme = role / "README.md"
    readme.write_text("Mine above.\n\n" + role_docs.BEGIN + "\nold\n" + role_docs.END + "\n\nMine below.\n")
    role_docs.follow(role, check=False)
    text = readme.read_text()
    assert text.startswith("Mine above.\n")
    assert text.endswith("Mine below.\n")
    assert "\nold\n" not in text
    assert "| `writer_mode` | str | **required** | How it is opened. A second paragraph. One of `a`, `b`. |" in text
    assert "| `writer_parts.name` | str |  | Name \\| of the part. |" in text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("writer_path:", "path:", "option path does not start with writer_"),
        ("        type: path\n", "", "option writer_path has no type"),
        ("        elements: dict\n", "", "option writer_parts is a list without elements"),
        ("description: What it consists of.", "description: ''", "option writer_parts has no description"),
        ("            type: str\n", "", "option writer_parts.name has no type"),
        ("        required: true\n", "        required: true\n        default: a\n", "required and has a default"),
        ("      writer_mode:", "      writer_other:", "tasks/main.yml uses writer_mode"),
        ("      writer_mode:", "      writer_other:", "nothing uses option writer_other"),
    ],
)
def test_bad_interface(role, old, new, expected):
    (role / "meta/argument_specs.yml").write_text(SPEC.replace(old, new))
    assert any(expected in complaint for complaint in role_docs.follow(role, check=False))


@pytest.mark.parametrize("harmless", ["# writer_gone", "- modelfleet.inference.writer_gone:", "- x: a/writer_gone.j2"])
def test_names_that_are_no_variables(role, harmless):
    (role / "tasks/more.yml").write_text(harmless + "\n")
    assert role_docs.follow(role, check=False) == []
