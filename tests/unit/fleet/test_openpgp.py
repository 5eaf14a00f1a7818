# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys as gpg writes them, and files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet import openpgp

KEYS = Path(__file__).parents[2] / "fixtures" / "openpgp"
RSA = "90A93A2F4DC0126B1A501AB37121923FE345E19D"  # as `gpg --with-colons --list-keys` printed them
ED25519 = "68DA1F2454A4FC6B220DAD59156252D60C5D8DBF"


@pytest.mark.parametrize(
    ("names", "fingerprints"),
    [
        (["rsa2048.asc"], [RSA]),
        (["rsa2048.gpg"], [RSA]),
        (["ed25519.asc"], [ED25519]),
        (["rsa2048.asc", "ed25519.asc"], [RSA, ED25519]),
    ],
)
def test_fingerprints(names, fingerprints):
    assert openpgp.fingerprints(b"".join((KEYS / name).read_bytes() for name in names)) == fingerprints


def test_armour_is_gpgs_own():
    def body(text):
        return [line for line in text.splitlines() if line and not line.startswith("-")]

    assert body(openpgp.armour((KEYS / "rsa2048.gpg").read_bytes())) == body((KEYS / "rsa2048.asc").read_text())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>404</html>",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----\n",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQENB!\n-----END PGP PUBLIC KEY BLOCK-----\n",
        (KEYS / "rsa2048.gpg").read_bytes()[:100],
    ],
    ids=["empty", "html", "empty armour", "broken armour", "cut off"],
)
def test_what_is_no_key(data):
    with pytest.raises(ValueError):  # noqa: PT011 - the words differ, that it is refused matters
        openpgp.fingerprints(data)


@pytest.mark.parametrize("text", [RSA, RSA.lower(), f"0x{RSA}", "90A9 3A2F 4DC0 126B 1A50  1AB3 7121 923F E345 E19D"])
def test_as_people_write_it(text):
    assert openpgp.plain(text) == RSA
