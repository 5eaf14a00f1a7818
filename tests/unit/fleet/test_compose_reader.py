# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Compose's files may say beside the table of tests/fixtures/compose: variables, .env files, and refusals."""

from __future__ import annotations

from typing import Any, Optional

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import compose_reader, interpolation
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.errors import FleetError
from ansible_collections.modelfleet.inference.plugins.plugin_utils import yaml_source

VALUES = {"A": "a", "EMPTY": "", "PATH_": "/x", "DOLLAR": "$A"}


def read(text: str, **files: str) -> compose_reader.Project:
    beside = {f"/srv/x/{name.replace('__', '.')}": content for name, content in files.items()}
    return compose_reader.read(yaml_source.for_compose(text, "compose.yaml"), "/srv/x", beside.get)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A-${A}", "a-a"),
        ("$$A ${A:-$$}", "$A a"),
        ("${B:-x${A:-y}z}", "xaz"),
        ("${EMPTY:-x}${EMPTY-x}", "x"),
        ("${A:+yes}${B:+no}${EMPTY:+no}${EMPTY+yes}", "yesyes"),
        ("${A:?needed}${EMPTY?ok}", "a"),
        ("${DOLLAR}", "$A"),  # a value is not read again
        ("${B:-{a}}", "{a}"),
        ("no variable }", "no variable }"),
    ],
)
def test_variables(text: str, value: str) -> None:
    unset: set[str] = set()
    assert interpolation.substitute(text, VALUES.get, unset) == value
    assert not unset


@pytest.mark.parametrize(("text", "unset"), [("$B ${C}", {"B", "C"}), ("${B:?say it}", {"B"}), ("${B:-${C}}", {"C"})])
def test_what_nobody_sets_is_told(text: str, unset: set[str]) -> None:
    found: set[str] = set()
    interpolation.substitute(text, VALUES.get, found)
    assert found == unset


@pytest.mark.parametrize("text", ["$", "a $", "${", "${A", "${}", "$ {A}", "${A!x}", "${1}", "$1"])
def test_a_dollar_that_compose_refuses(text: str) -> None:
    with pytest.raises(interpolation.BadVariable):
        interpolation.substitute(text, VALUES.get)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("N=plain", "plain"),
        ("export N = spaced ", "spaced"),
        ("N=", ""),
        ("N", None),
        ("N=a#b # comment", "a#b"),
        ("N=# comment", ""),
        ("N='$A \\n it\\'s'", "$A \\n it's"),
        ('N="$A \\"q\\" \\$A\\n"  # comment', 'a "q" $A\n'),
        ("N=$A/${B:-b}", "a/b"),
        ('N="two\nlines"', "two\nlines"),
        ("N: yaml", "yaml"),
        ("N=a=b", "a=b"),
        ("N=crlf\r", "crlf"),
    ],
)
def test_env_files(line: str, value: Optional[str]) -> None:
    found = interpolation.read_env(f"# first\n\n{line}\nLAST=1\n", VALUES.get)
    assert found == {"N": value, "LAST": "1"}


@pytest.mark.parametrize("text", ["N='open", 'N="open', "=x", "N=${", "a b = c = d!"])
def test_an_env_file_that_compose_refuses(text: str) -> None:
    with pytest.raises(interpolation.BadVariable):
        interpolation.read_env(text, VALUES.get)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("On", "On"), ("true", True), ("False", False), ("~", None), ("", None), ("null", None),
        ("12", 12), ("-3", -3), ("0x1F", 31), ("0o17", 15), ("017", 15), ("1_000", 1000), ("0b11", 3),
        ("1.50", 1.5), ("1e3", 1000.0), (".5", 0.5), ("8007:22", "8007:22"), ("12:30:45", "12:30:45"),
        ("2026-12-01", "2026-12-01"), ("1.2.3", "1.2.3"), ("0.32.0", "0.32.0"), ("-", "-"), ("1e", "1e"),
    ],
)  # fmt: skip
def test_scalars_are_read_as_go_does(text: str, value: Any) -> None:
    found = yaml_source.scalar(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("services:\n  a:\n    image: 'x\n", "compose.yaml:", "unexpected end"),
        ("a: 1\n", "compose.yaml:", "no Compose file"),
        ("services:\n  a:\n    image: x\n    image: y\n", "compose.yaml:4:", "image a second time"),
        ("services:\n  a:\n    image: x${\n", "compose.yaml:3:", "without its }"),
        ("services:\n  a:\n    command: 'open \"quote'\n", "compose.yaml:3:", "no closing quotation"),
        ("services:\n  a:\n    command: [a, 1]\n", "compose.yaml:3:", "1 must be in quotes"),
        ("services:\n  a:\n    ports: ['x:y']\n", "compose.yaml:3:", "x:y is no port"),
        ("services:\n  a:\n    ports: !reset []\n", "compose.yaml:3:", "the tag !reset"),
        ("services:\n  a: word\n", "compose.yaml:2:", "a is no service"),
        ("services:\n  a:\n    <<: [word]\n", "compose.yaml:3:", "not a mapping"),
    ],
)
def test_what_compose_refuses_is_refused_with_its_line(text: str, place: str, word: str) -> None:
    with pytest.raises(FleetError) as caught:
        read(text)
    [finding] = caught.value.findings
    assert f"{finding.place}:".startswith(place)
    assert word in finding.problem.lower() or word in finding.problem


def test_a_broken_line_is_not_repeated_for_it_may_hold_a_secret() -> None:
    with pytest.raises(FleetError) as caught:
        read("services:\n  a:\n    environment:\n      TOKEN: 'hf_secretsecret\n  b: [\n")
    assert "hf_secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("services:\n  a: {image: x}\ninclude: [b.yaml]\n", "includes other files"),
        ("services:\n  a: {extends: {service: b}}\n  b: {image: x}\n", "another service's definition"),
        ("services:\n  a: {image: x, env_file: gone.env}\n", "gone.env is not there"),
        ("services:\n  a: {image: x, volumes: ['~/m:/m']}\n", "the home of whoever starts it"),
    ],
)
def test_what_another_file_or_a_shell_would_have_to_say_is_named(text: str, word: str) -> None:
    project = read(text)
    assert [word in finding.problem for finding in project.findings] == [True]


def test_a_relative_path_of_a_file_that_is_read_elsewhere_is_named() -> None:
    source = yaml_source.for_compose("services:\n  a:\n    volumes:\n      - ./m:/m\n      - /n:/n\n", "compose.yaml")
    project = compose_reader.read(source, "/home/me", {}.get, elsewhere=True)
    assert [finding.place for finding in project.findings] == ["compose.yaml:4"]


def test_every_value_has_its_place_also_through_anchors() -> None:
    project = read(
        "x-a: &a\n  environment: {ONE: '1'}\n  ipc: host\nservices:\n  s:\n    <<: *a\n    image: i\n"
        "    environment:\n      - TWO=${GONE}\n    env_file: e.env\n",
        e__env="THREE=3\n",
    )
    [service] = project.services
    assert service.definition["environment"] == {"THREE": "3", "TWO": ""}
    assert service.place("ipc") == "compose.yaml:3"
    assert service.place("image") == "compose.yaml:7"
    assert service.place("environment", "TWO") == "compose.yaml:9"
    assert service.place("environment", "THREE") == "/srv/x/e.env"
    assert service.unset == {("environment", "TWO"): ("GONE",)}


@pytest.mark.parametrize(
    ("text", "size"), [("64m", 64 << 20), ("16gb", 16 << 30), ("1GiB", 1 << 30), ("100", 100), ("2.5k", 2560), (7, 7)]
)
def test_sizes(text: Any, size: int) -> None:
    assert compose_reader.size(text) == size
