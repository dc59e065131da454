#!/usr/bin/env python3
"""Writes English messages and their Italian translations as one file, from the catalogues of Debian packages.

    prepare.py FOLDER    packages of packages.txt are downloaded to FOLDER/packages; writes FOLDER/pairs.tsv

A line of pairs.tsv holds a split (train, valid or test), the English message and the Italian one, parted by tabs.
A message stands there once, whatever the number of catalogues that hold it, with the translation that most give.
Messages that differ in case, punctuation or numbers alone fall into the same split; and what shares nearly all of its
words with a message of valid or test is left out of train, so that those two hold only messages that a model has not
seen.
"""

import collections
import gettext
import hashlib
import io
import pathlib
import re
import subprocess
import sys
import tarfile

CATALOGUES = "./usr/share/locale/it/LC_MESSAGES/"
MOST_WORDS, MOST_CHARACTERS = 12, 80
VALID, TEST = 0.015, 0.025  # shares of the messages
# The share of words in common from which on two messages are nearly one: a message of three and one word more, or two
# of six in which one word differs.
NEAR = 0.7


def download(folder):
    """The packages' files, in the order of their names. What is there already is not fetched again."""
    names = (pathlib.Path(__file__).parent / "packages.txt").read_text().split()
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in names if not list(folder.glob(f"{name}_*.deb"))]
    if missing:
        print(f"downloading {len(missing)} packages to {folder}", file=sys.stderr)
        # Without a user of its own, apt need not be able to write to the folder as that user.
        command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *missing]
        subprocess.run(command, cwd=folder, check=True)
    return [next(folder.glob(f"{name}_*.deb")) for name in names]


def catalogues(package):
    """Each Italian catalogue in a package, as English -> Italian."""
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for file in files:
            if file.isfile() and file.name.startswith(CATALOGUES) and file.name.endswith(".mo"):
                catalogue = gettext.GNUTranslations(files.extractfile(file))._catalog
                # A plural message has a key for each of its forms, (English, number), the singular's first.
                first = {key[0] if isinstance(key, tuple) else key: text for key, text in reversed(catalogue.items())}
                yield {key.split("\x04")[-1]: text for key, text in first.items()}  # what precedes \x04 is a context


def clean(english, italian):
    """A pair of plain sentences, or None where it is none, or a long one."""
    for mark in "_&":  # of a key that chooses a menu's entry: "_File"
        if english.count(mark) == 1 and italian.count(mark) == 1:
            english, italian = english.replace(mark, ""), italian.replace(mark, "")
    english, italian = english.strip(), italian.strip()
    for text in (english, italian):
        if not re.search(r"[^\W\d_]{2}", text) or re.search(r"[\n\t\r]|  |^[-<|]", text):
            return None
        if len(text.split()) > MOST_WORDS or len(text) > MOST_CHARACTERS or not text.isprintable():
            return None
    return None if english == italian else (english, italian)


def words(message):
    """What tells messages apart: their words, without case, punctuation, numbers and what stands for a value, as %s."""
    return tuple(re.findall(r"[^\W\d_]+", re.sub(r"%[-+#0-9.$*]*[a-z]", " ", message.lower())))


def share(key):
    """A number from 0 to 1 that is always the same for a message."""
    return int.from_bytes(hashlib.sha256(" ".join(key).encode()).digest()[:8], "big") / 2**64


def read_pairs(packages):
    """English -> Italian, each message with its most frequent translation, the first of several."""
    found = collections.defaultdict(collections.Counter)
    for package in packages:
        kept = 0
        for catalogue in catalogues(package):
            for english, italian in catalogue.items():
                if pair := clean(english, italian):
                    kept += pair[0] not in found
                    found[pair[0]][pair[1]] += 1
        _, version, _ = package.name.split("_")
        print(f"{package.name.split('_')[0]} {version.replace('%3a', ':')}: {kept} new messages", file=sys.stderr)
    return {english: italian.most_common(1)[0][0] for english, italian in sorted(found.items())}


def near_duplicates(candidates, held_out):
    """Those candidates that share at least NEAR of the words of both with a held-out message."""
    holders = collections.defaultdict(list)
    sets = [set(words(message)) for message in held_out]
    for i, held in enumerate(sets):
        for word in held:
            holders[word].append(i)
    near = set()
    for message in candidates:
        own = set(words(message))
        shared = collections.Counter(i for word in own for i in holders.get(word, ()))
        if any(count >= NEAR * len(own | sets[i]) for i, count in shared.items()):
            near.add(message)
    return near


def main():
    folder = pathlib.Path(sys.argv[1])
    pairs = read_pairs(download(folder / "packages"))
    split = {}
    for english in pairs:
        part = share(words(english))
        split[english] = "valid" if part < VALID else "test" if part < VALID + TEST else "train"
    held_out = [english for english, part in split.items() if part != "train"]
    near = near_duplicates([english for english, part in split.items() if part == "train"], held_out)
    lines = [f"{split[english]}\t{english}\t{italian}\n" for english, italian in pairs.items() if english not in near]
    (folder / "pairs.tsv").write_text("".join(lines))
    sizes = collections.Counter(line.split("\t")[0] for line in lines)
    print(f"{len(pairs)} messages; {len(near)} left out, as they are nearly one of valid or test; "
          f"train {sizes['train']}, valid {sizes['valid']}, test {sizes['test']}", file=sys.stderr)


if __name__ == "__main__":
    main()
