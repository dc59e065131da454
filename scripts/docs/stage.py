#!/usr/bin/env python3
"""Writes what the site of the documentation is made from: the tree's documents with links that lead somewhere on the site, the pages
of the references, and the man page. mkdocs.yml says what becomes of it. Usage: stage.py FOLDER --stub FILE"""

import argparse
import json
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

import cpp_pages
import python_pages
import yaml

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))
from check_rooms import Rooms  # noqa: E402

DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md"]
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".sh": "bash", ".json": "json", ".cmake": "cmake", ".ts": "ts"}
PICTURES = {".svg", ".png", ".jpg", ".gif", ".webp"}
LATE = "---\nsearch:\n  boost: 0.2\n---\n\n"  # a search finds it after what is true today
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
CODE = re.compile(r"^( {0,3})(```+|~~~+).*?^ {0,3}\2[ \t]*$|(?<!`)(`+)(?!`).+?(?<!`)\3(?!`)", re.DOTALL | re.MULTILINE)


class Stage:
    def __init__(self, folder, repository_url):
        self.folder, self.url, self.done = folder, repository_url, set()
        self.queue = [*DOCUMENTS, *(f"docs/{path.name}" for path in sorted((REPOSITORY / "docs").glob("*.md")))]
        self.queue += [f"benchmarks/results/{path.name}" for path in sorted((REPOSITORY / "benchmarks/results").glob("*.md"))]

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def place(self, target):
        """Where a file of the tree stands on the site; None where it does not."""
        path = REPOSITORY / target
        if path.is_dir() and (path / "README.md").exists():
            target, path = f"{target}/README.md", path / "README.md"
        if not path.exists():
            raise SystemExit(f"scripts/docs/stage.py: a document has a link to {target}, which is not there")
        if path.is_dir():
            return None
        if target.startswith("include/attend/"):
            return f"reference/cpp/{path.stem}.md"
        if target == "docs/attend.1":
            return "reference/command.md"
        if path.suffix == ".md" or path.suffix in PICTURES:
            self.queue.append(target)
            return target
        if path.stat().st_size < 100_000 and path.suffix != ".ipynb" and b"\0" not in path.read_bytes():
            self.queue.append(target)
            return f"source/{target}.md"
        self.queue.append(target)
        return target  # to be downloaded

    def linked(self, text, page):
        """The text of a document, whose links lead to what is on the site, else to the repository, else nowhere: a name stays."""
        def link(found):
            mark, words, target = found.groups()
            if re.match(r"[a-z]+:|#", target):
                return found[0]
            path, _, anchor = target.partition("#")
            there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
            place = None if there.startswith("..") else self.place(there)
            words = words if mark else LINK.sub(link, words)  # a picture
            if place is None:
                return f"[{words}]({self.url}/blob/main/{there})" if self.url else words
            anchor = "" if place.startswith(("reference/", "source/")) else anchor
            return f"{mark}[{words}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{'#' + anchor if anchor else ''})"
        return self.outside_code(text, link)

    def outside_code(self, text, link):
        """The text, whose code is hidden while links are looked for."""
        parts, last = [], 0
        for code in CODE.finditer(text):
            parts += [text[last:code.start()], code]
            last = code.end()
        parts.append(text[last:])
        holes = [part[0] for part in parts if not isinstance(part, str)]
        whole = "".join(part if isinstance(part, str) else "\0" for part in parts)
        whole = LINK.sub(link, whole)
        filled = iter(holes)
        return re.sub("\0", lambda _: next(filled), whole)

    def documents(self, doors):
        while self.queue:
            name = self.queue.pop(0)
            if name in self.done:
                continue
            self.done.add(name)
            path = REPOSITORY / name
            if name == "README.md":
                self.write(name, home(self.linked(path.read_text(), name), doors))
            elif path.suffix == ".md":
                history = name.startswith(("benchmarks/results/", "CHANGELOG"))
                self.write(name, LATE * history + self.linked(path.read_text(), name))
            elif path.suffix in PICTURES or self.place(name) == name:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, self.folder / name)
            else:
                fence = "`" * 4
                language = LANGUAGES.get(path.suffix, "text")
                self.write(f"source/{name}.md", f"---\ntitle: {name}\nsearch:\n  exclude: true\n---\n\n# {name}\n\n"
                                                f"{fence}{language}\n{path.read_text().rstrip()}\n{fence}\n")


def home(text, doors):
    """The first page: doors for its readers below what attend is."""
    head, rest = re.match(r"(# .*?\n\n.*?)\n\n(.*)", text, re.DOTALL).groups()
    cards = "\n\n".join(f"-   **[{door['title']}]({door['page']})**\n\n    {door['text']}" for door in doors)
    return f'---\nhide:\n  - navigation\n---\n\n{head}\n{{ .lead }}\n\n<div class="grid cards" markdown>\n\n{cards}\n\n</div>\n\n{rest}'


def man_page(path):
    html = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", path], capture_output=True, text=True, check=True).stdout
    html = html.split('<div class="manual-text">')[1].split('<table class="foot">')[0].rsplit("</div>", 1)[0]
    html = re.sub(r"</?section[^>]*>\n?", "", html)
    parts = re.split(r'<h([12]) class="S[hs]" id="([^"]+)">(?:<a [^>]*>)?(.*?)(?:</a>)?</h\1>', html, flags=re.DOTALL)
    out = ["---\ntitle: The command\n---\n\n# The command attend\n\nThis is the command's man page, `man attend`."]
    for level, anchor, title, body in zip(*[iter(parts[1:])] * 4):
        title = " ".join(re.sub(r"<[^>]+>", "", title).split())
        body = re.sub(r'<a class="permalink"[^>]*>(.*?)</a>', r"\1", body, flags=re.DOTALL).strip()
        out.append(f"{'#' * (int(level) + 1)} {title.capitalize() if title.isupper() else title} {{ #{anchor} }}")
        if body:
            out.append(f'<div class="man">\n{body}\n</div>')
    return "\n\n".join(out) + "\n"


def cpp_reference(stage, file_link):
    headers = cpp_pages.read_headers(REPOSITORY / "include/attend")
    names = cpp_pages.Names(headers, file_link)
    rooms = Rooms((REPOSITORY / "docs/design.md").read_text()).headers
    groups = {}
    for name, header in headers.items():
        stage.write(f"reference/cpp/{name[:-2]}.md", cpp_pages.page_of(name, header, names))
        room = "everything" if name == "attend.h" else rooms.get(name[:-2], "other")
        groups.setdefault(room, []).append(name)
    order = ["everything", *dict.fromkeys(rooms.values()), "other"]
    groups = {room: groups[room] for room in order if room in groups}
    stage.write("reference/cpp/index.md", cpp_pages.overview(headers, groups, names))
    navigation = ["reference/cpp/index.md"]
    for room, found in groups.items():
        pages = [f"reference/cpp/{name[:-2]}.md" for name in found]
        navigation += pages if len(pages) == 1 else [{cpp_pages.title_of(room): pages}]
    types = {entry.name: f"{name[:-2]}.html#{entry.name}" for name, header in headers.items() for entry in header.entries if entry.is_type}
    places = {f"attend::{name}": f"reference/cpp/{header[:-2]}.html#{cpp_pages.anchor(name)}" for name, header in names.where.items()}
    return navigation, types, places | {f"attend/{name}": f"reference/cpp/{name[:-2]}.html" for name in headers}


def python_reference(stage, stub, file_link, scratch):
    package = python_pages.read_package(REPOSITORY / "python/attend", stub, scratch)
    names = python_pages.Names(package, file_link)
    written, order = python_pages.pages(package, names)
    for name, text in written.items():
        stage.write(f"reference/python/{name}", text)
    navigation = []
    for module, classes in order:
        navigation.append(f"reference/python/{module}.md")
        if classes:
            navigation.append({f"Classes of {module}": [f"reference/python/{each}.md" for each in classes]})
    shutil.rmtree(scratch)
    types = {name.rsplit(".", 1)[-1]: f"{name}.html" for name in order[0][1]}
    return navigation, types, {name: f"reference/python/{page[:-3]}.html#{name}" for name, page in names.where.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--stub", type=pathlib.Path, required=True, help="_core.pyi, which the build makes")
    arguments = parser.parse_args()
    settings = yaml.load((REPOSITORY / "mkdocs.yml").read_text(), yaml.BaseLoader)
    shutil.rmtree(arguments.folder, ignore_errors=True)
    stage = Stage(arguments.folder, settings.get("repo_url"))
    stage.documents(settings["extra"]["doors"])

    def file_link(name):
        """From a page of a reference to a document that its comments name."""
        path, _, anchor = name.partition("#")
        return f"../../{path}{'#' + anchor if anchor else ''}" if path in stage.done and path.endswith(".md") else None

    navigation, types = {}, {}
    navigation["reference/cpp/"], types["cpp"], places = cpp_reference(stage, file_link)
    scratch = arguments.folder / ".package"
    navigation["reference/python/"], types["python"], more = python_reference(stage, arguments.stub, file_link, scratch)
    results = sorted((name for name in stage.done if name.startswith("benchmarks/results/")), reverse=True)
    navigation["benchmarks/results/"] = results
    stage.write("reference/command.md", man_page(REPOSITORY / "docs/attend.1"))
    (arguments.folder / "navigation.json").write_text(json.dumps({"navigation": navigation, "types": types, "places": places | more}))


if __name__ == "__main__":
    main()
