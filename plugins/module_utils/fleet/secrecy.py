# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which values nobody may see, and the vault variables that stand for them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

# Words between underscores. Rather one variable too many in the vault than one key on a screen.
WORDS = frozenset(
    [
        "TOKEN",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "PASS",
        "PWD",
        "SECRET",
        "SECRETS",
        "KEY",
        "KEYS",
        "APIKEY",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
        "AUTHORIZATION",
        "COOKIE",
        "DSN",
        "PRIVATE",
        "SALT",
    ]
)
VALUES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{12,}"
    r"|xox[abp]-[\w-]{10,}|nvapi-[\w-]{16,}|eyJ[\w-]{10,}\.[\w-]{10,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\b[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@|\b[Bb]earer\s+[\w.-]{8,}"
)
HIDDEN = "(not shown)"
SHORTEST = 6  # characters; a shorter value is too common a text to be looked for


def looks_secret(text: str) -> bool:
    """Whether the text holds a key of a known shape, or an address with a password in it."""
    return bool(VALUES.search(text))


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of this name, or with this value, is one that nobody may see."""
    return not WORDS.isdisjoint(re.split(r"[^A-Z0-9]+", name.upper())) or looks_secret(value)


# Inside a configuration a "token" is mostly one of a text.
INNER_NAMES = re.compile(
    r"(^|[_-])(password|passwd|secret|api[_-]?key|access[_-]?key|hf_token|auth_token)$", re.IGNORECASE
)


def holds_secret(value: Any) -> bool:
    """Whether anything inside is a secret by its shape or by its key."""
    if isinstance(value, Mapping):
        return any(
            (INNER_NAMES.search(str(key)) and isinstance(item, str) and item) or holds_secret(item)
            for key, item in value.items()
        )
    if isinstance(value, (list, tuple)):
        return any(holds_secret(item) for item in value)
    return isinstance(value, str) and looks_secret(value)


def shown(text: str) -> str:
    """The text as a message may have it."""
    option, space, _value = text.partition(" ")
    option, equals, _value = option.partition("=")
    if is_secret(option.strip("-").replace("-", "_"), text):
        return f"{option}{equals or space}{HIDDEN}"
    return text


@dataclass
class Vault:
    """Gives each different secret a variable."""

    values: dict[str, str]
    places: dict[str, str]

    def variable(self, owner: str, name: str, value: str, place: str) -> str:
        """The template that stands for this value of this stack; the same value elsewhere is the same variable."""
        short = _word(name)
        for variable, known in self.values.items():
            if value and known == value and (variable.endswith(short) or short.endswith("key")):
                return _template(variable)
        variable = f"vault_{short}"
        if name == "api_key" or (variable in self.values and self.values[variable] != value):
            variable = f"vault_{_word(owner)}_{short}"
        number = 2
        while variable in self.values and self.values[variable] != value:
            variable = f"vault_{_word(owner)}_{short}_{number}"
            number += 1
        self.values[variable] = value
        self.places.setdefault(variable, place)
        return _template(variable)

    def value(self, template: str) -> str:
        return self.values.get(template.strip("{} "), "")


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _template(variable: str) -> str:
    return "{{ " + variable + " }}"


def filled(value: Any, secrets: Mapping[str, str]) -> Any:
    """The same with every vault variable replaced by its value, or by a text where nobody knows it."""
    if isinstance(value, Mapping):
        return {key: filled(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, secrets) for item in value]
    if isinstance(value, str):
        match = re.fullmatch(r"\{\{ (vault_\w+) \}\}", value)
        if match:
            return secrets.get(match[1]) or f"unknown-{match[1]}-0123456789"
    return value


def sealed(data: bytes, key: str) -> bytes:
    """``data`` unreadable without the key, and with it readable again by the same function. One key, one message.

    For what a module answers: with -vvv Ansible prints that, and keeps it in its log.
    """
    blocks = range(len(data) // hashlib.sha256().digest_size + 1)
    stream = b"".join(hashlib.sha256(f"{key} {number}".encode()).digest() for number in blocks)
    return bytes(one ^ other for one, other in zip(data, stream))


def scrubbed(value: Any, secrets: Iterable[str]) -> Any:
    """The last gate before a screen, a file or a result: no known secret passes, however deep it lies."""
    hidden = sorted({secret for secret in secrets if len(secret) >= SHORTEST}, key=len, reverse=True)
    return _scrubbed(value, hidden)


def _scrubbed(value: Any, hidden: Sequence[str]) -> Any:
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {_scrubbed(key, hidden): _scrubbed(item, hidden) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scrubbed(item, hidden) for item in value]
    return value
