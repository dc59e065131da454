"""The documentation's site in --site: every public name of C++ and Python has its place there, every link leads somewhere, and nothing
is loaded from elsewhere."""

import html
import importlib
import importlib.util
import json
import pathlib
import re
import urllib.parse

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = sorted((REPOSITORY / "include/attend").glob("*.h"))
MODULES = ["attend", "attend.onnx", "attend.widget"]
MODULES += ["attend.torch", "attend.transformers"] if importlib.util.find_spec("transformers") else []
# What includes others, and macros of the compiler's.
WITHOUT_NAMES = {"api.h", "attend.h", "io.h", "layers.h", "models.h"}


@pytest.fixture(scope="module")
def site(request):
    folder = request.config.getoption("--site")
    if folder is None:
        pytest.skip("no site was given: --site FOLDER (make docs)")
    return folder.resolve(strict=True)


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}


@pytest.fixture(scope="module")
def anchors(pages):
    return {name: {html.unescape(each) for each in re.findall(r'\sid="([^"]+)"', text)} for name, text in pages.items()}


def test_every_document_is_a_page(pages):
    documents = [*REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("benchmarks/results/*.md")]
    names = [path.relative_to(REPOSITORY).with_suffix(".html").as_posix() for path in documents]
    names += ["index.html", "benchmarks/index.html", "CHANGELOG.html", "CONTRIBUTING.html", "SECURITY.html", "reference/command.html"]
    assert set(names) <= pages.keys()
    assert len(names) > 40


def test_every_link_leads_somewhere(site, pages, anchors):
    broken, seen = [], 0
    for name, text in pages.items():
        for link in re.findall(r'<[a-z][^<>]*\s(?:href|src)="([^"]*)"', text):
            address = urllib.parse.urlsplit(html.unescape(link))
            if address.scheme in ("http", "https", "data", "javascript"):
                continue
            seen += 1
            target = (site / name).parent / urllib.parse.unquote(address.path) if address.path else site / name
            page = target.resolve().relative_to(site).as_posix() if target.resolve().is_relative_to(site) else None
            anchor = urllib.parse.unquote(address.fragment)
            if page is None or not target.is_file() or (anchor and page in pages and anchor not in anchors[page] | {"__top", "__skip"}):
                broken.append(f"{name}: {link}")
    assert broken == []
    assert seen > 10_000


def test_nothing_is_loaded_from_elsewhere(site, pages):
    tags = r'<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*\s(?:src|href|data|srcset)="(?:https?:)?//[^>]*>'
    styles = {path.name: path.read_text() for path in site.rglob("*.css")}
    assert len(styles) > 2
    for pattern, texts in ((tags, pages), (r"""(?:url\(|@import )["']?(?:https?:)?//[^)]*""", styles)):
        assert {name: found for name, text in texts.items() if (found := re.findall(pattern, text))} == {}


def test_no_markup_is_left(pages):
    for name, text in pages.items():
        body = re.search(r"<article.*?</article>", text, re.DOTALL)[0]
        plain = re.sub(r"<(pre|code)\b.*?</\1>", "", body, flags=re.DOTALL)
        assert re.findall(r"\{ [#.]\w.*|\*\*<|\]\([^)]*\.md", plain) == [], name


def slugs(path):
    """The anchors that a forge gives the headings of a document."""
    text = re.sub(r"^(```|~~~).*?^\1", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = []
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def test_anchors_are_those_of_a_forge_too():
    wrong, seen = [], 0
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("benchmarks/**/*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text()):
            seen += 1
            page = path.parent / target if target else path
            if page.suffix == ".md" and anchor not in slugs(page):
                wrong.append(f"{path.name}: {target}#{anchor}")
    assert wrong == []
    assert seen > 50


def without_comments(path):
    text = re.sub(r"//[^\n]*|/\*.*?\*/|\\\n", "", path.read_text(), flags=re.DOTALL)
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    return re.sub(r'"(?:[^"\\]|\\.)*"|ATTEND_(?:API|LIFETIMEBOUND)\b|ATTEND_ELEMENT\(.*\)|template <(?!>)[^>]*>', "", text)


def closing(text, opened):
    """The place behind the brace that closes the opened one."""
    depth = 0
    for at in range(opened, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at + 1
    raise AssertionError("a brace is not closed")


def declared(text, scope=(), public=True):
    """The public names that a piece of a header declares, in plain steps: a statement ends at a semicolon, or behind a body."""
    at = begin = depth = 0
    while at < len(text):
        letter = text[at]
        depth += (letter in "([") - (letter in ")]")
        statement = " ".join(text[begin:at].split())
        if letter == ":" and statement in ("public", "private", "protected"):
            public, begin = statement == "public", at + 1
        elif letter == "{" and depth == 0:
            end = closing(text, at)
            opened = re.match(r"(namespace|struct|class|enum class|enum)\s+([\w:]+)", statement)
            if opened and opened[1] == "namespace":
                yield from declared(text[at + 1:end - 1])
            elif opened and public:
                name = (*scope, opened[2])
                yield "::".join(name)
                if opened[1].startswith("enum"):
                    yield from ("::".join((*name, value)) for value in re.findall(r"(\w+)(?:\s*=[^,]*)?\s*(?:,|$)", text[at + 1:end - 1]))
                else:
                    yield from declared(text[at + 1:end - 1], name, opened[1] == "struct")
            elif public and "(" in statement and not re.search(r"[^=!<>]=[^=]", statement.split("(")[0]):
                yield from names_in(statement, scope)
                begin = end  # a function's body
            at = end - 1
            begin = end if opened else begin
        elif letter == ";" and depth == 0:
            if public:
                yield from names_in(statement, scope)
            begin = at + 1
        at += 1


def innermost_removed(text, pattern):
    while (shorter := re.sub(pattern, "", text)) != text:
        text = shorter
    return text


def names_in(statement, scope):
    plain = innermost_removed(statement.replace("->", ""), r"<[^<>;]*>")
    if not plain or re.match(r"friend|using std|static_assert|(class|struct) \w+$|template\b|\}", plain) or re.search("~|operator", plain):
        return
    special = re.match(r"using (\w+) =", plain) or re.search(r"\(\*(\w+)\)", plain)
    function = re.match(r"[^(={]*?(\w+)\(", plain)
    if special or function:
        yield "::".join((*scope, (special or function)[1]))
        return
    for each in innermost_removed(plain, r"\{[^{}]*\}|\([^()]*\)").split(","):
        yield "::".join((*scope, re.search(r"(\w+)$", re.split(r"[=\[]", each)[0].strip())[1]))


def test_every_public_name_of_the_headers_has_its_place(anchors):
    missing = []
    for path in HEADERS:
        names = set(declared(without_comments(path))) | set(re.findall(r"^#define (ATTEND_VERSION\w*)", path.read_text(), re.MULTILINE))
        assert path.name in WITHOUT_NAMES or names, path.name
        missing += [f"{path.name}: {name}" for name in sorted(names - anchors[f"reference/cpp/{path.stem}.html"])]
    assert missing == []


def test_the_names_of_headers_are_read():
    names = {name for path in HEADERS for name in declared(without_comments(path))}
    assert {"attention", "AttentionOptions::causal", "KvCache::fork", "ErrorCode::bad_shape", "View::row", "Edit::Set::zero", "TensorMap",
            "HostThreads::run", "GradientBytes::least", "Dims::max_rank", "is_element", "ModelCall::observe"} <= names
    assert not {"Tensor::data_", "Tensor::Free", "Model::parts_"} & names
    assert len(names) > 1_500


def test_every_public_name_of_python_has_its_place(anchors):
    there = set().union(*(found for name, found in anchors.items() if name.startswith("reference/python/")))
    names = set(MODULES)
    for module in MODULES:
        owner = importlib.import_module(module)
        for name in owner.__all__:
            kind = getattr(owner, name)
            names.add(f"{module}.{name}")
            if isinstance(kind, type):
                ours = (each for each in kind.__mro__ if each.__module__.startswith("attend"))
                names |= {f"{module}.{name}.{member}" for each in ours for member in vars(each) if not member.startswith("_")}
    assert len(names) > 400
    assert sorted(names - there) == []


def test_a_search_finds_names(site):
    places = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]}
    assert {"reference/cpp/kv_cache.html#KvCache::fork", "reference/python/attend.Model.html#attend.Model.embed"} <= places


def test_declarations_are_those_of_a_user(pages):
    for name, text in pages.items():
        if name.startswith("reference/cpp/"):
            assert not re.search(r"<pre>(?:(?!</pre>).)*(?:ATTEND_API|ATTEND_LIFETIMEBOUND|namespace)", text, re.DOTALL), name
