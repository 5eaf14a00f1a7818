# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fingerprints in an OpenPGP public key file, armoured or binary: enough to know a key before it is trusted."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Iterator

_PUBLIC_KEY = 6  # packet tag (RFC 4880, 4.3); subkeys (14) hang on their primary key and carry no trust of their own


def fingerprints(data: bytes) -> list[str]:
    """Fingerprints of all primary keys, upper case without spaces. ValueError when it is no public key file."""
    found = []
    for tag, body in _packets(_binary(data)):
        if tag != _PUBLIC_KEY:
            continue
        if body[:1] == b"\x04":
            found.append(hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper())
        elif body[:1] in (b"\x05", b"\x06"):
            prefix = b"\x9a" if body[:1] == b"\x05" else b"\x9b"
            found.append(hashlib.sha256(prefix + len(body).to_bytes(4, "big") + body).hexdigest().upper())
        else:
            raise ValueError(f"a key of version {body[0] if body else '?'}, which nothing trusts any more")
    if not found:
        raise ValueError("no public key in it")
    return found


def plain(fingerprint: str) -> str:
    """As written by people, with spaces or 0x, to the form ``fingerprints`` gives."""
    return re.sub(r"^0X|\s|:", "", fingerprint.strip().upper())


def armoured(data: bytes) -> bool:
    return b"-----BEGIN PGP PUBLIC KEY BLOCK-----" in data


def armour(data: bytes) -> str:
    """A binary key as text, which apt and dnf both read."""
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    body = base64.b64encode(data).decode()
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    lines.append("=" + base64.b64encode((crc & 0xFFFFFF).to_bytes(3, "big")).decode())
    return "\n".join(["-----BEGIN PGP PUBLIC KEY BLOCK-----", "", *lines, "-----END PGP PUBLIC KEY BLOCK-----", ""])


def _binary(data: bytes) -> bytes:
    if not armoured(data):
        return data
    blocks = re.findall(
        rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[^\r\n]+\r?\n)*?\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----",
        data,
        re.DOTALL,
    )
    out = b""
    for block in blocks:
        lines = [line.strip() for line in block.splitlines()]
        try:
            # The line with "=" is the checksum.
            out += base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")), validate=True)
        except binascii.Error as error:
            raise ValueError(f"broken armour: {error}") from error
    return out


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        first = data[at]
        if not first & 0x80:
            raise ValueError("not an OpenPGP file")
        at += 1
        if first & 0x40:
            tag = first & 0x3F
            length = data[at] if at < len(data) else 0
            at += 1
            if 192 <= length < 224:
                length = ((length - 192) << 8) + data[at] + 192
                at += 1
            elif length == 255:
                length = int.from_bytes(data[at : at + 4], "big")
                at += 4
            elif length >= 224:
                raise ValueError("a packet in parts, which no key has")
        else:
            tag, size = (first >> 2) & 0x0F, first & 0x03
            if size == 3:
                raise ValueError("a packet without a length, which no key has")
            width = 1 << size
            length = int.from_bytes(data[at : at + width], "big")
            at += width
        if at + length > len(data):
            raise ValueError("the file is cut off")
        yield tag, data[at : at + length]
        at += length
