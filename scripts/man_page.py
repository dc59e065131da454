#!/usr/bin/env python3
"""Writes what docs/attend.1 has of the command's help: synopsis, examples, and each command's description, arguments and options.

Those lines stand between marks in the page; all others are written by hand. Usage: man_page.py COMMAND [PAGE]
"""
import re
import subprocess
import sys
from pathlib import Path

# .\" help of: run            begins what is made,
# .\" end                     ends it.
MADE = re.compile(r'^(\.\\" help of: ([^\n]*)\n).*?^(\.\\" end\n)', re.MULTILINE | re.DOTALL)


class Help:
    """One page of help: its parts, by their headings, and what stands without one."""

    def __init__(self, command, *name):
        text = subprocess.run([command, "help", *name], capture_output=True, text=True, check=True).stdout
        self.usage, self.description, self.examples, self.lists = "", "", [], {}
        for part in text.split("\n\n"):
            heading, _, rest = part.strip("\n").partition("\n")
            if heading == "Examples:":
                self.examples = [line.strip() for line in rest.splitlines()]
            elif heading.startswith("Usage:"):
                self.usage = heading.removeprefix("Usage: ")
            elif heading.endswith(":") and rest.startswith("  "):
                self.lists[heading] = entries(rest)
            else:
                self.description = part.replace("\n", " ").strip()


def entries(text):
    """[name, description] of each entry of a list: a name stands behind two spaces, what goes on behind more."""
    found = []
    for line in text.splitlines():
        if begins := re.match(r"  (\S.*?)(?:  +(.*))?$", line):
            found.append([begins[1], begins[2] or ""])
        else:
            found[-1][1] += " " + line.strip()
    return found


def escaped(text):
    """A minus sign that begins a word is no hyphen."""
    return re.sub(r"(?<![\w-])-+", lambda signs: r"\-" * len(signs[0]), text.replace("\\", r"\e"))


def prose(text):
    """Each sentence on a line of its own, none of which is taken for a macro."""
    lines = re.split(r"(?<=[.:]) (?=[A-Z])", escaped(text))
    return "".join((r"\&" if line[:1] in (".", "'") else "") + line.strip() + "\n" for line in lines)


def value(text):
    """What stands for a value: words of its own in lower case, names in capitals."""
    words = [("Cm " if word.islower() or "_" in word else "Ar ") + word for word in text.split("|")]
    return re.sub(r"(?<=\S) \| Cm (?=\S)", " | ", " | ".join(words)) if len(words) > 1 else words[0]


def item(name):
    """.It of an entry, such as "-o, --output FILE"."""
    if not name.startswith("-"):
        return f".It Ar {name}\n"
    names, _, kind = name.replace(", ", ",").partition(" ")
    flags = " , ".join("Fl " + each.removeprefix("-").replace("-", r"\-", 1) for each in names.split(","))
    return f".It {flags}{' ' + value(kind) if kind else ''}\n"


def usage(line):
    """The synopsis of a command, such as "attend run Q K [V] [options]"."""
    _, command, *rest = re.sub(r"-o (FILE|FOLDER)", r"-o_\1", line).split()
    text = f".Nm\n.Cm {command}\n"
    for word in rest:
        bare = word.strip("[]").replace("...", " ...")
        macro = f"Fl o Ar {bare.removeprefix('-o_')}" if bare.startswith("-o_") else f"Ar {bare}"
        text += f".Op {macro}\n" if word.startswith("[") else f".{macro}\n"
    return text


def options(page):
    text = prose(page.description)
    for heading, found in page.lists.items():
        found = [each for each in found if not each[0].startswith("-h,")]  # of all commands: by hand
        if not found:
            continue
        text += "" if heading in ("Arguments:", "Options:") else f".Pp\n{heading}\n"
        text += ".Bl -tag -width Ds\n" + "".join(item(name) + prose(what) for name, what in found) + ".El\n"
    return text


def made(page, command):
    """The page with what it has of the help made anew. Raises ValueError where a command has no place in it."""
    names = [name for name, _ in Help(command).lists["Commands:"]]
    pages = {name: Help(command, name) for name in names}
    whole = {"synopsis": "".join(usage(each.usage) for each in pages.values()),
             "examples": ".Bd -literal -offset indent\n" + "".join(escaped(line) + "\n" for each in pages.values()
                                                                    for line in each.examples) + ".Ed\n"}
    places = {name: options(each) for name, each in pages.items()} | whole
    if missing := places.keys() - {name for _, name, _ in MADE.findall(page)}:
        raise ValueError(f"docs/attend.1: no place for {', '.join(sorted(missing))}")
    return MADE.sub(lambda found: found[1] + places[found[2]] + found[3], page)


if __name__ == "__main__":
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).resolve().parent.parent / "docs/attend.1"
    path.write_text(made(path.read_text(), sys.argv[1]))
