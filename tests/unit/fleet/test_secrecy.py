# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import secrecy


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "x", True),
        ("OPENAI_API_KEY", "x", True),
        ("db-password", "x", True),
        ("AWS_SECRET_ACCESS_KEY", "x", True),
        ("LITELLM_SALT_KEY", "x", True),
        ("URL", "postgresql://me:pw@db/x", True),
        ("URL", "http://db:5432/x", False),
        ("ANY", "hf_abcdefghijklmnopqrst", True),
        ("HEADER", "Bearer abcdefghijkl", True),
        ("PEM", "-----BEGIN RSA " + "PRIVATE KEY-----", True),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("MAX_TOKENS", "32", False),
        ("VLLM_LOGGING_LEVEL", "INFO", False),
        ("KEYBOARD", "de", False),
    ],
)
def test_which_variables_nobody_may_see(name: str, value: str, secret: bool) -> None:
    assert secrecy.is_secret(name, value) is secret


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        ({"image_token": "<img>", "a": [1, None]}, False),
        ({"store": {"api_key": "x"}}, True),
        ({"password": ""}, False),
        (["sk-abcdefghijk"], True),
        (7, False),
    ],
)
def test_secrets_inside_of_values(value: Any, secret: bool) -> None:
    assert bool(secrecy.holds_secret(value)) is secret


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--hf-token=abc", "--hf-token=(not shown)"),
        ("--api-key abc", "--api-key (not shown)"),
        ("--x sk-abcdefghijk", "--x (not shown)"),
        ("--max-tokens 3", "--max-tokens 3"),
    ],
)
def test_words_of_a_command_in_a_message(words: str, shown: str) -> None:
    assert secrecy.shown(words) == shown


def test_equal_secrets_share_a_variable_and_others_do_not() -> None:
    vault = secrecy.Vault({}, {})
    first = vault.variable("a", "HF_TOKEN", "one", "p1")
    assert first == "{{ vault_hf_token }}"
    assert vault.variable("b", "HF_TOKEN", "one", "p2") == first
    assert vault.variable("b", "HF_TOKEN", "two", "p3") == "{{ vault_b_hf_token }}"
    assert vault.variable("b", "HF_TOKEN", "three", "p4") == "{{ vault_b_hf_token_2 }}"
    assert vault.variable("a", "api_key", "k", "p5") == "{{ vault_a_api_key }}"
    assert vault.places["vault_hf_token"] == "p1"
    filled = secrecy.filled({"x": [first, "{{ vault_gone }}", 1]}, vault.values)
    assert filled == {"x": ["one", "unknown-vault_gone-0123456789", 1]}


def test_no_known_value_passes_the_last_gate() -> None:
    value = {"a longsecret": ["b longsecret2", 7, None], "b": "b"}
    assert secrecy.scrubbed(value, ["longsecret", "longsecret2", "b"]) == {
        "a (not shown)": ["b (not shown)", 7, None],
        "b": "b",
    }


@pytest.mark.parametrize("data", [b"", b"a secret" * 9, bytes(range(256)) * 3])
def test_what_is_sealed_is_read_with_its_key_only(data: bytes) -> None:
    hidden = secrecy.sealed(data, "key")
    assert secrecy.sealed(hidden, "key") == data
    assert len(hidden) == len(data)
    assert not data or (hidden != data and secrecy.sealed(hidden, "other") != data)
    assert b"secret" not in hidden
