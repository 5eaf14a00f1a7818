#!/usr/bin/env python3
# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is sight told from blindness? Many seeded runs of the questions against a good model and its blinded twin.

    benchmarks/sight.py --good http://127.0.0.1:18301 --blind http://127.0.0.1:18302 --runs 200

A false alarm is a run that fails on the good model; a miss is a run that the blind model passes. Both are counted, with
the upper end of the one-sided 95 % interval for their rate (none in n runs: 1 - 0.05^(1/n), about 3/n). Exit status 1
when either happened. Every question alone is counted too, and every single picture.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import Counter
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, ".ansible", "collections"))

from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import asker, http  # noqa: E402
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.verdict import conclude  # noqa: E402


def upper_bound(events: int, runs: int) -> float:
    """Largest rate that would still give this few events in one of twenty such series (Clopper-Pearson, one-sided)."""
    low, high = events / runs, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        few = sum(math.comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(events + 1))
        low, high = (rate, high) if few > 0.05 else (low, rate)
    return high


def series(name: str, url: str, model: str, asks: dict[str, Any], seeds: range, out: Any) -> Counter[str]:
    tally: Counter[str] = Counter()
    model = model or http.fetch("GET", f"{url}/v1/models", timeout=10).json()["data"][0]["id"]
    start = time.monotonic()
    for seed in seeds:
        verdicts = asker.ask(url, model, asks, seed=seed)
        end = conclude(verdicts)
        tally["passed" if end["passed"] else "failed"] += 1
        tally[f"conclusion {end['code']}"] += 1
        for verdict in verdicts:
            tally[f"question {verdict['question']} {'passed' if verdict['passed'] else 'failed'}"] += 1
            for exchange in verdict["exchanges"]:
                tally[f"answer {verdict['question']} {'right' if exchange['right'] else 'wrong'}"] += 1
        if out:
            slim = [{**verdict, "pictures": len(verdict["pictures"]), "exchanges": [
                {key: each[key] for key in ("expected", "answer", "right", "code", "seconds")}
                for each in verdict["exchanges"]]} for verdict in verdicts]  # fmt: skip
            print(json.dumps({"model": name, "seed": seed, "conclusion": end, "verdicts": slim}), file=out, flush=True)
    tally["seconds"] = round(time.monotonic() - start)
    return tally


def show(name: str, wrong_way: str, events: int, tally: Counter[str], runs: int) -> None:
    print(f"{name}: {wrong_way} {events} of {runs} runs, one-sided 95 % bound {upper_bound(events, runs):.4f}; "
          f"{tally['seconds'] / runs:.1f} s a run")  # fmt: skip
    for key in sorted(key for key in tally if key.startswith("conclusion")):
        print(f"  {key}: {tally[key]}")
    for code in sorted({key.split()[1] for key in tally if key.startswith("question")}):
        print(f"  {code:28} passed {tally[f'question {code} passed']:4} of {runs:4}    single answers right "
              f"{tally[f'answer {code} right']:4} of "
              f"{tally[f'answer {code} right'] + tally[f'answer {code} wrong']:4}")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--good", default=os.environ.get("SIGHT_GOOD"), help="address of the model that sees")
    parser.add_argument("--blind", default=os.environ.get("SIGHT_BLIND"), help="address of its blinded twin")
    parser.add_argument("--model", default="", help="served model name of both (default: the one that each serves)")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; the next run has the next")
    parser.add_argument("--modalities", default="text,image,video")
    parser.add_argument("--questions", default="", help="only these codes, with commas")
    parser.add_argument("--log", help="write each run as a line of JSON here")
    args = parser.parse_args()
    if not (args.good or args.blind):
        print("Not measured: no --good and no --blind (or SIGHT_GOOD, SIGHT_BLIND). Figures: docs/questions.md.")
        return 0
    asks: dict[str, Any] = {"task": "chat", "modalities": args.modalities.split(","), "thinking": True}
    if args.questions:
        asks["questions"] = args.questions.split(",")
    else:
        asks["questions"] = ["text"] + [
            code
            for code in ("image_number", "image_colour_shape", "image_pair", "image_two_in_one_request", "video_order")
            if code.split("_")[0] in asks["modalities"]
        ]
    seeds = range(args.seed, args.seed + args.runs)
    bad = 0
    out = open(args.log, "w", encoding="utf-8") if args.log else None  # noqa: SIM115
    if args.good:
        tally = series("good", args.good, args.model, asks, seeds, out)
        bad += tally["failed"]
        show("good model", "false alarms in", tally["failed"], tally, args.runs)
    if args.blind:
        tally = series("blind", args.blind, args.model, asks, seeds, out)
        bad += tally["passed"]
        show("blind model", "passed in", tally["passed"], tally, args.runs)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
