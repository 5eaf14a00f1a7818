#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a tiny model of random numbers that the real engine serves: embed, rerank, classify or reward.

It shows that requests, shapes and orders of answers work. It cannot show meaning: which text is nearer or better is
chance, so ask it with `untrained: true`. Standard library only; the tokenizer is tiny-vlm's.

Usage: make_random.py embed|rerank|classify|reward FOLDER
Serve with: vllm serve FOLDER --runner pooling --enforce-eager --max-model-len 512 --kv-cache-memory-bytes 64M
"""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
from pathlib import Path

from make_blind import bfloat16_noise

TOKENIZER = Path(__file__).parent / "tiny-vlm"
WIDTH, LAYERS, HEADS, GROUPS, HEAD, INNER, WORDS = 64, 2, 2, 1, 32, 128, 512
ARCHITECTURES = {
    "embed": "Qwen3ForCausalLM",
    "rerank": "Qwen3ForSequenceClassification",
    "classify": "Qwen3ForSequenceClassification",
    "reward": "Qwen2ForRewardModel",
}
LABELS = {"rerank": 1, "classify": 3}


def shapes(kind: str) -> dict[str, tuple[int, ...]]:
    old = kind == "reward"  # Qwen2: biases at the projections instead of norms
    out: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (WORDS, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        head = f"model.layers.{layer}"
        out[f"{head}.input_layernorm.weight"] = (WIDTH,)
        out[f"{head}.post_attention_layernorm.weight"] = (WIDTH,)
        for name, width in (("q", HEADS * HEAD), ("k", GROUPS * HEAD), ("v", GROUPS * HEAD)):
            out[f"{head}.self_attn.{name}_proj.weight"] = (width, WIDTH)
            if old:
                out[f"{head}.self_attn.{name}_proj.bias"] = (width,)
        out[f"{head}.self_attn.o_proj.weight"] = (WIDTH, HEADS * HEAD)
        if not old:
            out[f"{head}.self_attn.q_norm.weight"] = out[f"{head}.self_attn.k_norm.weight"] = (HEAD,)
        for name in ("gate", "up"):
            out[f"{head}.mlp.{name}_proj.weight"] = (INNER, WIDTH)
        out[f"{head}.mlp.down_proj.weight"] = (WIDTH, INNER)
    if kind in LABELS:
        out["score.weight"] = (LABELS[kind], WIDTH)
    if kind == "reward":
        out |= {"score.0.weight": (WIDTH, WIDTH), "score.0.bias": (WIDTH,), "score.2.weight": (1, WIDTH)}
        out["score.2.bias"] = (1,)
    return out


def main(kind: str, folder: str) -> None:
    target = Path(folder)
    target.mkdir(parents=True)
    source, header, data = random.Random(kind), {}, bytearray()
    for name, shape in shapes(kind).items():
        begin, count = len(data), math.prod(shape)
        # A norm's weights are ones (0x3F80 is 1.0); the others are small, so that nothing overflows.
        ones = "norm" in name
        data += b"\x80\x3f" * count if ones else bfloat16_noise(count, 0.0 if "bias" in name else 0.15, source)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    config = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": "qwen2" if kind == "reward" else "qwen3",
        "vocab_size": WORDS,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "head_dim": HEAD,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    if kind in LABELS:
        config["num_labels"] = LABELS[kind]
        config["id2label"] = {str(i): f"LABEL_{i}" for i in range(LABELS[kind])}
        config["label2id"] = {f"LABEL_{i}": i for i in range(LABELS[kind])}
        config["pad_token_id"] = 0
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, target / name)
    print(f"{target}: {kind}, {len(data) // 2:,} random parameters")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ARCHITECTURES:
        sys.exit(__doc__)
    main(*sys.argv[1:])
