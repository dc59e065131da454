"""Writes src/core/width_table.h: how many columns of a terminal each character takes.

    python3 scripts/make_width_table.py

Source: the Unicode character database of the Python that runs it (the header says which version), and in it
General_Category (Mn, Me, Cf, Zl, Zp: no column) and East_Asian_Width (W, F: two columns).
"""

import pathlib
import unicodedata

HEADER = pathlib.Path(__file__).parent.parent / "src" / "core" / "width_table.h"

TEXT = """\
// Characters that take no column or two columns of a terminal. Made by scripts/make_width_table.py from Unicode {version}:
// no column for General_Category Mn, Me, Cf, Zl, Zp (but U+00AD, which terminals draw) and for the Hangul vowels and
// final consonants that join the letter before them; two for East_Asian_Width W and F. Ranges run on over unassigned
// code points, so that most characters of later versions fall where their neighbours are.
#pragma once

#include <array>

#include "core/code_points.h"

namespace attend {{

// clang-format off
inline constexpr std::array<CodePointRange, {zero_count}> zero_width_ranges = {{{{
{zero}
}}}};

inline constexpr std::array<CodePointRange, {wide_count}> wide_ranges = {{{{
{wide}
}}}};
// clang-format on

}}  // namespace attend
"""


def width(c):
    if c == 0xAD:
        return 1
    if 0x1160 <= c <= 0x11FF or unicodedata.category(chr(c)) in ("Mn", "Me", "Cf", "Zl", "Zp"):
        return 0
    return 2 if unicodedata.east_asian_width(chr(c)) in "WF" else 1


def ranges(wanted):
    found, open_range = [], False
    for c in range(0x110000):
        # Python 3.11 calls some unassigned code points wide; the standard says so only of the ideographic planes.
        if unicodedata.category(chr(c)) == "Cn" and not 0x20000 <= c <= 0x3FFFD:
            continue
        if width(c) != wanted:
            open_range = False
        elif open_range:
            found[-1][1] = c
        else:
            found.append([c, c])
            open_range = True
    return found


def rows(found):
    items = [f"{{0x{first:x}, 0x{last:x}}}," for first, last in found]
    lines, line = [], "   "
    for item in items:
        if len(line) + 1 + len(item) > 120:
            lines.append(line)
            line = "   "
        line += " " + item
    return "\n".join([*lines, line])


if __name__ == "__main__":
    zero, wide = ranges(0), ranges(2)
    HEADER.write_text(
        TEXT.format(
            version=unicodedata.unidata_version,
            zero_count=len(zero),
            zero=rows(zero),
            wide_count=len(wide),
            wide=rows(wide),
        )
    )
