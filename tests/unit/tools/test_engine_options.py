# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small engine, written the way vLLM is written, and what the tool reads out of it."""

from __future__ import annotations

import json
import zipfile

import pytest

from tools import engine_options

FILES = {
    "vllm/config/model.py": """
from typing import Literal
DType = Literal["auto", "half"]
HALF = "half"

@config
class PassConfig:
    fuse: bool = False
    size: float | None = None
    _private: int = 0
    measured: float = field(default=0.0, init=False)

@config
class CompilationConfig:
    level: Literal[0, 1] = 0
    pass_config: PassConfig = Field(default_factory=PassConfig)
    sizes: list[int] | None = None
    anything: SomeEnum = None

@config
class ModelConfig:
    dtype: DType | SomeTorchType = "auto"
    max_model_len: int | None = None
    max_num_batched_tokens: int = 1
    seed: int = 0
    enforce_eager: bool = False
    hf_token: bool | str | None = None
    hf_overrides: dict[str, Any] | Callable = None
    mm_kwargs: dict[str, Any] | None = None
    ignore: str | list[str] = "x"
    sizes: list[int] | None = None
    compilation_config: CompilationConfig = None
    rate: "float | None" = None
    backend: DType = "auto"
""",
    "vllm/engine/arg_utils.py": """
def _compute_kwargs(cls):
    human_readable_int_args = {"max_num_batched_tokens"}

class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="ModelConfig")
        model_kwargs["dtype"]["choices"].remove(HALF)
        group.add_argument("--dtype", **model_kwargs["dtype"])
        group.add_argument("--max-model-len", **model_kwargs["max_model_len"])
        group.add_argument("--max-num-batched-tokens", **{**model_kwargs["max_num_batched_tokens"], "default": None})
        group.add_argument("--enforce-eager", **model_kwargs["enforce_eager"])
        group.add_argument("--hf-token", **model_kwargs["hf_token"])
        group.add_argument("--hf-overrides", **model_kwargs["hf_overrides"])
        group.add_argument("--mm-kwargs", **model_kwargs["mm_kwargs"])
        group.add_argument("--ignore", **model_kwargs["ignore"])
        group.add_argument("--sizes", **model_kwargs["sizes"])
        group.add_argument("--rate", **model_kwargs["rate"])
        group.add_argument("--compilation-config", "-cc", **model_kwargs["compilation_config"])
        backend_kwargs = model_kwargs["backend"]
        backend_kwargs["type"] = lambda s: s.lower().replace("-", "_")
        group.add_argument("--backend", **backend_kwargs)
        group.add_argument("--old", action=argparse.BooleanOptionalAction, help="DEPRECATED: gone soon")
        parser.add_argument("--disable-log-stats", action="store_true", help="x")
        parser.add_argument("--device", choices=["auto"] + [current_platform.device_type])
        return parser
""",
    "vllm/entrypoints/common/cli_args.py": """
from vllm.other import Level

class BaseFrontendArgs:
    level: Level = "low"

@config
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    origins: list[str] = None
    middleware: list[str] = None

    def _customize_cli_kwargs(cls, frontend_kwargs):
        frontend_kwargs["origins"]["type"] = json.loads
        del frontend_kwargs["origins"]["nargs"]
        del frontend_kwargs["middleware"]["nargs"]

def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--count", "-c", type=int)
""",
    "vllm/other/__init__.py": "from .inside import Level",
    "vllm/other/inside.py": 'Level = Literal["low", "high"]',
    "vllm/utils/argparse_utils.py": "class EnableDisableAction: ...",
    "vllm/tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {"hermes": ("a", "b")}',
    "vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"qwen3": ("a", "b")}',
    "vllm/envs.py": 'environment_variables: dict = {"VLLM_B": 1, "VLLM_A": 2, "HOME": 3}',
    "vllm-9.8.7.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 9.8.7+cu130\n",
}
WANTED = {
    "dtype": {"kind": "str", "choices": ["auto"]},
    "max_model_len": "size",
    "max_num_batched_tokens": "size",
    "enforce_eager": "flag",
    "hf_token": "str",
    "hf_overrides": "json_or_str",
    "mm_kwargs": "json",
    "ignore": "strs",
    "sizes": "ints",
    "rate": "float",
    "compilation_config": {"kind": "@CompilationConfig", "short": ["cc"]},
    "backend": {"kind": "word", "choices": ["auto", "half"]},
    "old": {"kind": "flag", "deprecated": True},
    "disable_log_stats": "switch",
    "device": "str",
    "level": {"kind": "str", "choices": ["low", "high"]},
    "port": "int",
    "origins": "json",
    "middleware": "str",
    "count": {"kind": "int", "short": ["c"]},
}


@pytest.fixture(params=["wheel", "folder"])
def engine(request, tmp_path):
    if request.param == "wheel":
        path = tmp_path / "vllm-9.8.7.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in FILES.items():
                archive.writestr(name, text)
        return path
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_options_are_read_from_the_source(engine):
    read = engine_options.from_wheel(engine)
    assert read["options"] == WANTED
    assert read["engine"] == "9.8.7"
    assert read["inverse"] is True
    assert read["configs"] == {
        "CompilationConfig": {"level": [0, 1], "pass_config": "@PassConfig", "sizes": "list", "anything": "any"},
        "PassConfig": {"fuse": "bool", "size": "float"},
    }
    assert read["registries"] == {
        "tool_call_parser": ["hermes"],
        "reasoning_parser": ["qwen3"],
        "environment": ["VLLM_A", "VLLM_B"],
    }


def test_the_list_is_written_one_option_a_line(engine, tmp_path, monkeypatch, capsys):
    output = tmp_path / "options_9.8.json"
    monkeypatch.setattr("sys.argv", ["engine_options.py", str(engine), "--output", str(output)])
    assert engine_options.main() == 0
    assert "20 options of vLLM 9.8.7" in capsys.readouterr().out
    text = output.read_text(encoding="utf-8")
    assert json.loads(text) == engine_options.from_wheel(engine)
    assert '\n  "enforce_eager": "flag",\n' in text


def test_a_dump_of_the_engines_own_parser_is_held_against_it(engine, tmp_path, monkeypatch, capsys):
    ours = engine_options.from_wheel(engine)
    ours["options"] = {"port": "int", "dtype": {"kind": "str", "choices": ["auto"]}, "gone": "str"}
    common = {"choices": None, "nargs": None, "negatable": False, "config_class": None}
    dump = {
        "flags": [
            {**common, "name": "--port", "kind": "str"},
            {**common, "name": "--dtype", "kind": "str", "choices": ["auto", "half"]},
            {**common, "name": "--new", "kind": "str"},
        ],
        "configs": {
            "CompilationConfig": {"level": {}, "pass_config": {}, "sizes": {}, "anything": {}},
            "PassConfig": {},
        },
        "registries": {"tool_call_parser": ["hermes", "other"], "reasoning_parser": ["qwen3"]},
    }
    assert engine_options.differences(ours, dump) == [
        "gone: only in the source",
        "new: only in the dump",
        "dtype: choices ['auto'] here, ['auto', 'half'] in the dump",
        "port: int here, str in the dump",
        "PassConfig: ['fuse', 'size'] only in the source",
        "tool_call_parser: ['other'] only on one side",
    ]
