# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs under the Python that has vLLM: reads [[yaml text, option], ...], writes what its parser made of each.

Answers are ["ok", value of the option] or ["refused", the parser's last line].
"""

import contextlib
import io
import json
import os
import sys
import tempfile

# vLLM prints while it is imported; only the answer may reach the real stdout.
answer_to, sys.stdout = sys.stdout, sys.stderr
from vllm.entrypoints.cli.serve import make_arg_parser  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402

parser = FlexibleArgumentParser(prog="vllm")
make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve"))
answers = []
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "vllm.yaml")
    for text, option in json.load(sys.stdin):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                parsed = parser.parse_args(["serve", "--config", path])
            value = getattr(parsed, option, None)
            answers.append(["ok", value if isinstance(value, (bool, int, float, str, list, dict)) else repr(value)])
        except SystemExit:
            answers.append(["refused", said.getvalue().strip().splitlines()[-1]])
json.dump(answers, answer_to)
