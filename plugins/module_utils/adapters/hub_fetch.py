# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches the weights of one model into the hub cache. Runs in a container of the stack's own image, as a program.

So the cache is written by the very library that the engine reads it with. It gets one JSON object on standard input,
which is in no process list and in no ``docker inspect``: ``repo``, ``revision``, ``environment`` (HF_TOKEN among it).
It says one JSON object a line: what is missing, how far it is, done, or why not.

A run that was interrupted goes on: files that are whole are kept, and a connection that drops is taken up where it was.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import json
import os
import sys
import threading
import time
from typing import Any, Callable, Optional, Sequence

ROOM_LEFT = 256 * 1024 * 1024  # bytes that a download leaves free, for what else writes there
TELL_SECONDS = 2.0
STALE_SECONDS = 600
# Beside safetensors the engine reads none of these, and they are often as large.
NOT_BESIDE_SAFETENSORS = (
    *("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "*.onnx_data", "*.ot", "*.tflite", "*.gguf"),
    *("original/*", "onnx/*", "coreml/*", "openvino/*"),
)


def needed(names: Sequence[str]) -> list[str]:
    """Those files of a repository that the engine may read."""
    if not any("/" not in name and name.endswith(".safetensors") for name in names):
        return list(names)
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in NOT_BESIDE_SAFETENSORS)]


def held(folder: str, blob: str) -> int:
    """Bytes of this file that are in the cache, whole or in part."""
    # Older libraries go on with NAME.incomplete, newer ones begin NAME.<8 hex digits>.incomplete anew.
    sizes = [0]
    for path in glob.glob(os.path.join(glob.escape(folder), glob.escape(blob) + "*")):
        with contextlib.suppress(OSError):  # it is renamed at the end
            sizes.append(os.path.getsize(path))
    return max(sizes)


def sweep(folder: str, now: float) -> None:
    """Remove what a killed download of a newer library left: nothing goes on with it, and it is as large as weights."""
    for path in glob.glob(os.path.join(glob.escape(folder), "*.????????.incomplete")):
        if now - os.path.getmtime(path) > STALE_SECONDS:
            os.unlink(path)


def cached(repo: str, revision: Optional[str]) -> None:
    """Raise what the library raises when this revision is not in the cache, or not whole."""
    import huggingface_hub

    try:
        huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=True)
    except Exception:
        # It also misses what was left out on purpose, by us or by an engine that fetched for itself.
        folder = huggingface_hub.snapshot_download(
            repo, revision=revision, local_files_only=True, allow_patterns=["*.safetensors", "config.json"]
        )
        if not glob.glob(os.path.join(glob.escape(folder), "*.safetensors")):
            raise


def fetch(wanted: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    import huggingface_hub
    from huggingface_hub import constants

    repo, revision = wanted["repo"], wanted["revision"] or None
    cache = constants.HF_HUB_CACHE
    folder = os.path.join(cache, "models--" + repo.replace("/", "--"), "blobs")
    os.makedirs(cache, exist_ok=True)
    if constants.HF_HUB_OFFLINE:
        cached(repo, revision)
        say({"event": "done", "fetched": 0})
        return
    try:
        info = huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
    except Exception as refused:
        try:  # as the engine does
            cached(repo, revision)
        except Exception:
            raise refused from None
        say({"event": "done", "fetched": 0})
        return
    names = needed([file.rfilename for file in info.siblings or ()])
    files = {}
    for file in info.siblings or ():
        if file.rfilename in names:
            lfs: Any = file.lfs
            blob = (lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)) or file.blob_id
            files[file.rfilename] = (str(blob), int(file.size or 0))
    sweep(folder, time.time())
    total = sum(size for _blob, size in files.values())

    def have() -> int:
        return sum(min(held(folder, blob), size) for blob, size in files.values())

    before = have()
    room = os.statvfs(cache)
    free = room.f_bavail * room.f_frsize
    say({"event": "size", "total": total, "missing": total - before, "free": free})
    if total - before > max(0, free - ROOM_LEFT):
        say({"event": "no_space", "total": total, "missing": total - before, "free": free})
        return
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(TELL_SECONDS):
            say({"event": "progress", "have": have(), "total": total})

    threading.Thread(target=tell, daemon=True).start()
    huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=[glob.escape(name) for name in names])
    ended.set()
    say({"event": "done", "fetched": total - before, "total": total})


def main(given: Optional[str] = None) -> int:
    wanted = json.loads(given if given is not None else sys.stdin.read())
    os.environ.update(wanted["environment"])  # before the library is imported, which reads it then
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    output = threading.Lock()

    def say(event: dict[str, Any]) -> None:
        with output:
            print(json.dumps(event), flush=True)

    try:
        fetch(wanted, say)
    except ImportError as error:
        say({"event": "no_library", "text": str(error)})
    except Exception as error:  # whatever the library raises is an answer for a person
        say({"event": "failed", "text": f"{type(error).__name__}: {error}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
