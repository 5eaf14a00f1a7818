# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""make demo: the lab, site.yml on it, then what runs where and the picture that the model was asked about.

Nothing here is special to the demo: the same commands, typed by hand, do the same. What it shows of the model is the
proof that the rollout left on the host.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import re
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.modelfleet.inference.plugins.module_utils.adapters import asker  # noqa: E402  (the path comes first)

BIN = Path(sys.executable).parent
COLUMNS = 44  # of a picture in the terminal
FOLDER = "/opt/docker/compose"


def step(title: str) -> None:
    print(f"\n\033[1m{title}\033[0m" if sys.stdout.isatty() else f"\n== {title}", flush=True)


def must(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it before the person's eyes; a demo that goes on after a failure lies."""
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, stdin=subprocess.DEVNULL, **options)
    if done.returncode:
        print((done.stdout or "") + (done.stderr or ""), file=sys.stderr)
        sys.exit(f"\n`{' '.join(command)}` ended with status {done.returncode}.")
    return done


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Width, height and RGB bytes of a PNG that fleet/picture.py drew: eight bits, no filter, no interlacing."""
    place, packed, width, height = 8, b"", 0, 0
    while place < len(png):
        size, kind = struct.unpack(">I4s", png[place : place + 8])
        data = png[place + 8 : place + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack(">IIBB", data[:10])
            if (depth, colours) != (8, 2):
                raise ValueError("not a picture that fleet/picture.py drew")
        elif kind == b"IDAT":
            packed += data
        place += size + 12
    rows = zlib.decompress(packed)
    line = width * 3 + 1
    if any(rows[y * line] for y in range(height)):
        raise ValueError("not a picture that fleet/picture.py drew")
    return width, height, b"".join(rows[y * line + 1 : (y + 1) * line] for y in range(height))


def half_blocks(png: bytes) -> str:
    """A picture for the terminal: each character shows two pixels, one above the other."""
    width, height, rgb = pixels(png)
    scale = max(1, -(-width // COLUMNS))

    def colour(x: int, y: int) -> str:
        """The mean of the square, so that thin lines survive."""
        square = [
            rgb[(b * width + a) * 3 : (b * width + a) * 3 + 3]
            for b in range(y, min(y + scale, height))
            for a in range(x, min(x + scale, width))
        ]
        return ";".join(str(sum(part) // len(square)) for part in zip(*square)) if square else "0;0;0"

    lines = []
    for y in range(0, height, 2 * scale):
        line = "".join(f"\033[38;2;{colour(x, y)};48;2;{colour(x, y + scale)}m▀" for x in range(0, width, scale))
        lines.append(f"  {line}\033[0m")
    return "\n".join(lines)


def proofs(host: str) -> list[dict[str, Any]]:
    """The receipts that the rollout left on the host, one a stack."""
    script = f"for one in {FOLDER}/*/.modelfleet/receipt.json; do cat $one; echo; done"
    said = must(["lab/lab", "ssh", host, script], stdout=subprocess.PIPE).stdout
    return [json.loads(line) for line in as_documents(said)]


def as_documents(text: str) -> list[str]:
    """Several JSON documents behind each other, taken apart."""
    decoder, place, found = json.JSONDecoder(), 0, []
    while text[place:].strip():
        place += len(text[place:]) - len(text[place:].lstrip())
        _value, end = decoder.raw_decode(text, place)
        found.append(text[place:end])
        place = end
    return found


def show_answers(receipts: list[dict[str, Any]], state: Path) -> None:
    for receipt in receipts:
        for answer in receipt["answers"]:
            verdict = "right" if answer["passed"] else "WRONG"
            said = " ".join(str(answer["answer"]).split())[:60]
            print(f"  {receipt['stack']:<20} {answer['question']:<22} {verdict}   {said}")
    for receipt in receipts:
        where = f"{receipt['served_model_name']} on {receipt['host']}"
        if any(show_picture(answer, where, state / f"{receipt['stack']}.png") for answer in receipt["answers"]):
            return
    print("  No model here was asked about a picture.")


def show_picture(answer: dict[str, Any], where: str, file: Path) -> bool:
    """The first picture of this answer that was read right, if it is one that was drawn for the run."""
    exchange = next((each for each in answer["exchanges"] if each["pictures"] and each["right"]), None)
    if exchange is None:
        return False
    png = base64.b64decode(answer["pictures"][exchange["pictures"][0]])
    try:
        drawn = half_blocks(png)
    except (ValueError, struct.error, zlib.error):
        return False  # a picture of the owner's own, in another format
    step(f"{where} was shown this picture, drawn for this run")
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        print(drawn)
    file.write_bytes(png)
    print(f"  picture    {file.relative_to(ROOT)}")
    print(f"  asked      {exchange['ask']}")
    print(f"  answered   {' '.join(str(exchange['answer']).split())}")
    print(f"  expected   {exchange['expected']}")
    return True


def show_through_the_gateway(inventory: str, state: Path) -> None:
    """Ask by the name that clients use, at the address that clients use."""
    url, key = gateway_of(inventory)
    asks = {"task": "chat", "modalities": ["text", "image"], "thinking": True, "questions": ["image_number"]}
    (answer,) = asker.ask(url, "vision", asks, seed=random.SystemRandom().randrange(2**31), api_key=key)
    if not show_picture(answer, f"{url} (LiteLLM), model 'vision',", state / "gateway.png"):
        sys.exit(f"The gateway did not read the picture: {answer['code']}: {answer.get('detail') or answer['answer']}")


def gateway_of(inventory: str) -> tuple[str, str]:
    """URL and key. The key is the lab's, which is no secret: it stands in this repository."""
    address = json.loads(must(["lab/lab", "status", "--json"], stdout=subprocess.PIPE).stdout)["ana-docker"]["address"]
    written = "".join(path.read_text() for path in (ROOT / inventory / "group_vars" / "gateways").glob("*.yml"))
    key = re.search(r"sk-lab-only-\w+", written)
    return f"http://{address}:4000", key.group() if key else ""


def ask_the_gateway(inventory: str) -> str:
    """A command for people."""
    url, key = gateway_of(inventory)
    question = '{"model": "vision", "messages": [{"role": "user", "content": "What is 2 + 3?"}]}'
    return (
        f"curl -s {url}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{question}'"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="real vLLM on the CPU instead of the simulated engine")
    real = parser.parse_args().real
    inventory = "inventories/lab-real" if real else "inventories/lab"
    host, container = "ana-ml2", "vllm-tiny-vlm" if real else "vllm-qwen35"
    started = time.monotonic()
    state = ROOT / ".cache" / "demo"
    state.mkdir(parents=True, exist_ok=True)
    playbook = [str(BIN / "ansible-playbook"), "-i", inventory]

    step("1. The lab: hosts with their own Docker engine and stand-in cards, as containers on this machine")
    must(["lab/lab", "up", *(["--hosts", host, "--no-images"] if real else [])])
    if real:
        # The image (built in minutes, once) and the models; what the scenario of the real engine begins with, too.
        must([*playbook, "molecule/real_engine/prepare.yml"])
    lab_up = time.monotonic()

    step(f"2. ansible-playbook -i {inventory} site.yml -l {host}")
    must([*playbook, "site.yml", "-l", host])
    deployed = time.monotonic()

    step("3. What runs where")
    print(must([*playbook, "playbooks/plan.yml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE).stderr.strip())

    step("4. What the models answered")
    show_answers(proofs(host), state)

    gateway_up = deployed
    if not real:
        step(f"5. The gateway: ansible-playbook -i {inventory} site.yml -l ana-docker")
        must([*playbook, "site.yml", "-l", "ana-docker"])
        gateway_up = time.monotonic()
        show_through_the_gateway(inventory, state)

    step("Try next")
    run = f".venv/bin/ansible-playbook -i {inventory} site.yml -l {host}"
    name = os.environ.get("LAB_NAME")
    for what, command in (
        ("again: nothing changes", run),
        ("break something, see the drift", f"lab/lab ssh {host} docker stop {container}; {run} --check --diff"),
        *([] if real else [("ask the gateway", ask_the_gateway(inventory))]),
        *([] if real else [("the same with real vLLM and a small model that really sees", "make demo-real")]),
    ):
        print(f"  # {what}\n  {f'export LAB_NAME={name}; ' if name else ''}{command}")
    print(
        f"\nlab {lab_up - started:.0f} s, site.yml {deployed - lab_up:.0f} s, "
        f"{'' if real else f'the gateway {gateway_up - deployed:.0f} s, '}"
        f"all of it {time.monotonic() - started:.0f} s. make clean removes everything."
    )


if __name__ == "__main__":
    main()
