"""A build takes the pages that compute where they are there, whole, and again when they change."""

import subprocess

import pytest

PAGE = ("<!doctype html><title><!--attend:title--></title><main id=\"static\"><!--attend:static--></main>"
        "<script type=\"application/json\" id=\"request\"><!--attend:request--></script>; [a] \"b\" \\1 ${c} ü\n")
FILE = "<script type=\"text/plain\" id=\"file\"><!--attend:file--></script>"
OBJECT = "src/CMakeFiles/attend_objects.dir/html/page.S.o"


@pytest.fixture
def configure(repository, tmp_path):
    def cmake(page, explorer="", guide=""):
        pages = [f"-DATTEND_PAGE={page}", f"-DATTEND_EXPLORER={explorer}", f"-DATTEND_CLASS={guide}"]
        return subprocess.run(["cmake", "-G", "Ninja", "-S", repository, "-B", tmp_path / "build", *pages], capture_output=True, text=True)

    return cmake


def built_in(tmp_path):
    """What the library's read-only data would hold."""
    done = subprocess.run(["cmake", "--build", tmp_path / "build", "--target", OBJECT], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (tmp_path / "build" / OBJECT).read_bytes()


def test_the_page_is_built_in_and_again_when_it_changes(configure, tmp_path, repository):
    page = tmp_path / "a page.html"
    page.write_text(PAGE)
    done = configure(page)
    assert done.returncode == 0 and f"is built in: {page}" in done.stdout, done.stderr
    style = (repository / "page/src/static.css").read_bytes()
    assert style + PAGE.encode() + b"\0" in built_in(tmp_path)
    page.write_text(PAGE + "more")
    assert style + PAGE.encode() + b"more\0" in built_in(tmp_path)
    page.unlink()
    page.write_text(PAGE.replace("<!--attend:title-->", ""))
    done = subprocess.run(["cmake", "--build", tmp_path / "build", "--target", OBJECT], capture_output=True, text=True)
    assert done.returncode != 0 and "<!--attend:title-->" in done.stdout + done.stderr
    assert configure("").returncode == 0
    assert style + b"\0" in built_in(tmp_path) and b"<!doctype" not in built_in(tmp_path)


def test_the_other_pages_are_built_in_beside_it(configure, tmp_path, repository):
    page, explorer, guide = (tmp_path / f"{name}.html" for name in ("lesson", "explorer", "class"))
    page.write_text(PAGE)
    explorer.write_text(PAGE + FILE)
    guide.write_text(PAGE + "guide")
    assert configure(page, explorer, guide).returncode == 0
    style = (repository / "page/src/static.css").read_bytes()
    assert style + (PAGE + PAGE + FILE + PAGE).encode() + b"guide\0" in built_in(tmp_path)
    explorer.write_text(PAGE)
    done = configure(page, explorer)
    assert done.returncode != 0 and "the mark <!--attend:file-->" in " ".join(done.stderr.split())
    page.write_text(PAGE + FILE)
    explorer.write_text(PAGE + FILE)
    done = configure(page, explorer)
    assert done.returncode != 0 and f"{page} has a mark that is not known: <!--attend:file-->" in " ".join(done.stderr.split())


@pytest.mark.parametrize("page, says", [
    (PAGE.replace("<!--attend:request-->", ""), "the mark <!--attend:request-->"),
    (PAGE + "<!--attend:static-->", "the mark <!--attend:static-->"),
    (PAGE + "<!--attend:other-->", "<!--attend:other-->"),
    (None, "is no file"),
], ids=["a mark is missing", "a mark is doubled", "a mark is not known", "there is no file"])
def test_what_is_no_template_ends_the_configuration(configure, tmp_path, page, says):
    path = tmp_path / "lesson.html"
    if page is not None:
        path.write_text(page)
    done = configure(path)
    assert done.returncode != 0 and says in " ".join(done.stderr.split()), done.stderr
