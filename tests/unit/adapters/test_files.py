# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a stack's folder keeps, and how large a model on the host is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import files


def test_the_newest_five_attempts_are_kept_two_of_one_second_among_them(tmp_path: Path) -> None:
    stamps = [f"2026-12-01T00000{second}Z" for second in range(6)]
    kept = [files.keep_failed(str(tmp_path), stamp, {"log": (stamp, "0600")}) for stamp in [*stamps, stamps[-1]]]
    left = sorted((tmp_path / ".modelfleet" / "failed").iterdir())
    assert [str(path) for path in left] == sorted(kept)[-files.FAILED_KEPT :]
    assert kept[-1] != kept[-2]
    assert [(path / "log").read_text() for path in left] == [*stamps[2:], stamps[-1]]


@pytest.mark.parametrize(
    ("model", "volumes", "size"),
    [
        ("/models/tiny", ["{here}/tiny:/models/tiny:ro"], 30),
        ("/models/tiny", ["{here}:/models"], 30),
        ("lab/tiny", ["{here}/vllm.yaml:/etc/vllm.yaml:ro", "{here}:/root/.cache/huggingface"], 7),
        ("lab/other", ["{here}:/root/.cache/huggingface"], 0),
        ("/models/none", ["{here}:/elsewhere", {"type": "tmpfs", "target": "/models"}], 0),
        ("/models/tiny", [], 0),
    ],
)
def test_the_size_of_a_model_on_the_host(tmp_path: Path, model: str, volumes: list[Any], size: int) -> None:
    for name, content in (
        ("tiny/a.safetensors", 10),
        ("tiny/b.safetensors", 20),
        ("hub/models--lab--tiny/blobs/0a1b", 7),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"w" * content)
    there = [volume.format(here=tmp_path) if isinstance(volume, str) else volume for volume in volumes]
    assert files.checkpoint_bytes(model, there) == size


def test_stacks_of_two_cards_make_the_cache_they_share_at_the_same_time(tmp_path: Path) -> None:
    for attempt in range(200):
        path = str(tmp_path / str(attempt) / "vllm" / "cache")
        together = Barrier(4)

        def make(path: str = path, together: Barrier = together) -> None:
            together.wait()
            files.make_folder(path, "0755")

        with ThreadPoolExecutor(4) as pool:
            for made in [pool.submit(make) for _each in range(4)]:
                made.result()


def test_a_folder_that_docker_made_in_a_files_place_is_seen_and_gives_way(tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml").mkdir()
    assert files.read(str(tmp_path), ["vllm.yaml"])["vllm.yaml"].folder
    files.write(str(tmp_path / "vllm.yaml"), "model: x\n")
    assert (tmp_path / "vllm.yaml").read_text() == "model: x\n"


def test_a_folder_with_something_in_it_stays(tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml" / "kept").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        files.write(str(tmp_path / "vllm.yaml"), "model: x\n")
    assert [path.name for path in tmp_path.iterdir()] == ["vllm.yaml"]
