"""Makes the golden data of the text tests: words.json here.

    python tests/golden/make_text_golden.py

needs Python 3.11, whose white space and sorting are the truth here.
"""

import json
import pathlib
import random

HERE = pathlib.Path(__file__).parent

WORD_TEXTS = [
    "",
    ",",
    " , ,, \t,\n",
    "   ",
    "one",
    "Life is short, eat dessert first",
    "Hello, my name is Elisa",
    "a,b c,,d ,e, f,",
    "1,000,000 is,a number",
    "the cat sat on the mat the end",
    "Zebra apple Apple zebra _x ~y 9 10 1",
    "tabs\tand\nlines\r\nand\vall\ffour",
    "no\u00a0break\u202fspaces\u2007here",
    "\u3000全角\u3000スペース\u3000です\u3000",
    "注意力，就是 一切 你 所需 的，东西、吗",  # the full-width comma is no comma
    "注意 すべて 주의 внимание προσοχή תשומת انتباه ध्यान ความสนใจ ትኩረት ყურადღება",
    "ä a\u0308 a b z ß ss ẞ Å A\u030a",  # composed and combining forms are different words
    "👩‍👩‍👧‍👦 🇩🇪 👍🏽 👍 ❤️ ❤ e\u0301 é",
    "zero\u200bwidth word\u2060joiner byte\ufefforder soft\u00adhyphen mongolian\u180eseparator",  # none splits
    "\ufb01 \uffff \U00010000 \U0001f600 \U0010ffff \ue000 \ud7ff z \u0080 \u07ff \u0800 \x7f",
    "nul\x00inside \x00 unit\x1fsep file\x1csep group\x1dsep record\x1esep \x1b[0m",
    "next\u0085line ogham\u1680space para\u2029graph line\u2028sep math\u205fspace",
    "، arabic،comma ⸲ turned ﹐small ，wide ‚low",
    " ".join(chr(c) for c in range(0x1FF0, 0x2070)),
    "x".join(chr(c) for c in range(0x180)),
]


def words_golden():
    cases = []
    for text in WORD_TEXTS:
        tokens = text.replace(",", "").split()
        cases.append({"text": text, "tokens": tokens, "vocabulary": sorted(set(tokens))})
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    order = random.Random(7).sample(chars, 600)
    tokens = [c for c in order if not c.isspace() and c != ","]
    cases.append({"text": " ".join(order), "tokens": tokens, "vocabulary": sorted(set(tokens))})
    white = [ord(c) for c in chars if c.isspace()]
    return {"cases": cases, "white_space": white}


def write(name, data):
    (HERE / name).write_text(json.dumps(data, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    write("words.json", words_golden())
