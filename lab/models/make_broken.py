#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a checkpoint with which the real engine becomes healthy, and which does not answer all the same.

no-template   tiny-vlm without its chat template: every chat request is refused with 400
no-tokenizer  tiny-vlm without its tokenizer: every prompt is empty, refused with 400
dies          a Qwen3.5 of the tokenizer's words whose linear attention has heads of 32, which the engine's CPU kernel
              does not know: it notices at the first request, and the server exits with status 0.
              Configuration only; serve it with --load-format dummy.

Usage: make_broken.py no-template|no-tokenizer|dies FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

GOOD = Path(__file__).parent / "tiny-vlm"
LEFT_OUT = {"no-template": ("chat_template.jinja",), "no-tokenizer": ("tokenizer.json", "tokenizer_config.json")}
KINDS = (*LEFT_OUT, "dies")


def dying() -> dict[str, object]:
    """tiny-vlm's configuration with the smallest hybrid text model in it: three linear layers, one of attention."""
    config = json.loads((GOOD / "config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    text.update(
        model_type="qwen3_5_text",
        hidden_size=128,
        intermediate_size=256,
        num_attention_heads=2,
        num_key_value_heads=1,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    )
    vision.update(model_type="qwen3_5_vision", depth=1, out_hidden_size=text["hidden_size"])
    del vision["deepstack_visual_indexes"]
    return {**config, "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5"}


def main(kind: str, folder: str) -> None:
    left_out = LEFT_OUT.get(kind, ("model.safetensors", "samples"))
    shutil.copytree(GOOD, folder, ignore=lambda _folder, _names: left_out)
    if kind == "dies":
        (Path(folder) / "config.json").write_text(json.dumps(dying(), indent=1) + "\n")
    print(f"{folder}: {kind}, without {', '.join(left_out)}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
