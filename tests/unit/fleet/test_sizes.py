# Copyright: modelfleet contributors
# GNU General Public License v3.0 or later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.modelfleet.inference.plugins.module_utils.fleet.sizes import (
    GIB,
    MIB,
    SizeError,
    format_size,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("34 GiB", 34 * GIB),
        ("34GiB", 34 * GIB),
        (" 38000 MiB ", 38000 * MIB),
        ("1.5 GiB", 3 * GIB // 2),
        ("512 KiB", 512 * 1024),
        ("1 TiB", 1024 * GIB),
        ("1 kB", 1000),
        ("46 GB", 46 * 10**9),
        ("7 MB", 7 * 10**6),
        ("2 TB", 2 * 10**12),
    ],
)
def test_sizes_with_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "code", "remedy"),
    [
        (34, "size_without_unit", '"34 GiB"'),
        ("38000", "size_without_unit", '"38000 MiB"'),
        (1.5, "size_without_unit", '"1.5 GiB"'),
        ("34 gib", "bad_size", '"34 GiB"'),
        ("34 G", "bad_size", '"34 GiB"'),
        ("34 GIB", "bad_size", '"34 GiB"'),
        ("34 bananas", "bad_size", "Known: KiB"),
        ("GiB", "bad_size", "a number and a unit"),
        ("-3 GiB", "bad_size", "a number and a unit"),
        (True, "bad_size", "a number and a unit"),
        (None, "bad_size", "a number and a unit"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: object, code: str, remedy: str) -> None:
    with pytest.raises(SizeError) as refused:
        parse_size(text)
    assert refused.value.code == code
    assert remedy in refused.value.remedy


@pytest.mark.parametrize(
    ("size", "text"),
    [(34 * GIB, "34.00 GiB"), (520 * MIB, "0.51 GiB"), (64 * MIB, "64 MiB"), (0, "0 MiB"), (-GIB, "-1.00 GiB")],
)
def test_sizes_are_written_with_a_unit(size: int, text: str) -> None:
    assert format_size(size) == text
