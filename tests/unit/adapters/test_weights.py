# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is fetched and what is kept, and what the word of the program that fetches is when it has none.

With the real huggingface_hub and a hub it runs in molecule/host.
"""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import hub_fetch, weights
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.weights import Wanted


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        (["config.json", "pytorch_model.bin"], ["config.json", "pytorch_model.bin"]),
        (["config.json", "a.safetensors", "pytorch_model.bin"], ["config.json", "a.safetensors"]),
        (["a.safetensors", "original/consolidated.00.pth", "onnx/model.onnx"], ["a.safetensors"]),
        (["model.gguf", "mmproj.gguf"], ["model.gguf", "mmproj.gguf"]),
        (["consolidated.safetensors", "tekken.json"], ["consolidated.safetensors", "tekken.json"]),
        (["pytorch_model.bin", "other/part.safetensors"], ["pytorch_model.bin", "other/part.safetensors"]),
    ],
)
def test_files_that_the_engine_may_read(names, needed):
    assert hub_fetch.needed(names) == needed


def test_what_is_held_of_a_file(tmp_path):
    for name, size in (("aa", 10), ("bb.incomplete", 4), ("cc.0123abcd.incomplete", 3), ("cc.9999abcd.incomplete", 5)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert [hub_fetch.held(str(tmp_path), blob) for blob in ("aa", "bb", "cc", "dd")] == [10, 4, 5, 0]


def test_what_a_killed_download_left_is_swept_and_what_can_go_on_is_kept(tmp_path):
    now = time.time()
    for name, age in (
        ("a.0123abcd.incomplete", 9999),
        ("b.0123abcd.incomplete", 5),
        ("c.incomplete", 9999),
        ("d", 9999),
    ):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    hub_fetch.sweep(str(tmp_path), now)
    assert sorted(os.listdir(tmp_path)) == ["b.0123abcd.incomplete", "c.incomplete", "d"]


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A program of that name that does what a test says; all it was called with is in ``calls``."""

    def does(script):
        program = tmp_path / "docker"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$1" = rm ] && exit 0\n{script}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return tmp_path / "calls"

    return does


ONE = Wanted("a/b", "c" * 40, "/hub", "/home", "image@sha256:1", "host", "7:7", {"HF_TOKEN": "hf_secret"}, ("one",))


@pytest.mark.parametrize(
    ("script", "event", "text"),
    [
        ('cat > /dev/null; echo \'{"event": "size"}\'; echo noise; echo \'{"event": "done"}\'', "done", ""),
        ("exit 127", "no_library", ""),
        ("echo 'exec: \"python3\": executable file not found in $PATH'; exit 1", "no_library", "python3"),
        ("cat > /dev/null; echo Killed; exit 137", "failed", "Killed"),
        ("cat > /dev/null; exit 137", "failed", "status 137"),
        ('cat > /dev/null; echo \'{"event": "progress"}\'; exit 1', "failed", "status 1"),
    ],
)
def test_the_last_word(docker, script, event, text):
    docker(script)
    last = weights.fetch(ONE, lambda event: None)
    assert last["event"] == event
    assert text in last.get("text", "")


def test_a_program_that_says_nothing_is_ended(docker, monkeypatch):
    monkeypatch.setattr(weights, "SILENT_SECONDS", 0.2)
    calls = docker("exec sleep 60")
    last = weights.fetch(ONE, lambda event: None)
    assert (last["event"], "no progress" in last["text"]) == ("failed", True)
    assert calls.read_text().splitlines()[-1] == "rm --force modelfleet-fetch-one"


def test_the_token_goes_in_by_standard_input_only(docker, tmp_path):
    calls = docker(f"cat > {tmp_path}/given")
    weights.fetch(ONE, lambda event: None)
    said = calls.read_text()
    assert "hf_secret" not in said
    for option in (
        "--volume /hub:/home",
        "--network host",
        "--user 7:7",
        "--pull never",
        "NVIDIA_VISIBLE_DEVICES=void",
    ):
        assert option in said
    assert '"HF_TOKEN": "hf_secret"' in (tmp_path / "given").read_text()
