#!/usr/bin/env python3
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold gpu_info's figures against torch's on a real card (docs/measured-gpu.md). Needs torch and a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "plugins"))

from module_utils.adapters import nvidia_smi

MIB = 1024 * 1024
ALLOWED_MIB = 2


def main() -> int:
    torch.cuda.mem_get_info()  # makes the context, which then counts on both sides
    worst = 0.0
    for gib in (0, 4, 40, 100):
        block = torch.empty(gib * 1024 * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
        free, total = (figure / MIB for figure in torch.cuda.mem_get_info())
        report = nvidia_smi.look()
        if report.trouble:
            print(report.trouble.problem, report.trouble.remedy)
            return 1
        card = report.cards[0]
        worst = max(worst, abs(card.cuda_total_mib - total), abs(card.free_mib - free))
        print(
            f"{gib:4d} GiB: free torch {free:.1f} MiB, gpu_info {card.free_mib} MiB; "
            f"total {total:.1f}, {card.cuda_total_mib}"
        )
        del block
        torch.cuda.empty_cache()
    print(f"largest difference {worst:.2f} MiB, allowed {ALLOWED_MIB} MiB")
    return 0 if worst <= ALLOWED_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
