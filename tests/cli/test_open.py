"""attend explain --open: where the page is written, and who is asked to show it."""

import os
import pathlib
import stat
import subprocess

import pytest


@pytest.fixture
def place(tmp_path):
    """A home, and a folder of programs that is all of PATH."""
    (tmp_path / "home").mkdir()
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(place, name, does="", status=0):
    """A program that writes down what it was given."""
    path = place / "bin" / name
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$#" "$@" >>"{place}/called"\n{does}\nexit {status}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def explain(command, place):
    def attend(*arguments, status=0, **variables):
        environment = {"PATH": str(place / "bin"), "HOME": str(place / "home"), **variables}
        done = subprocess.run([command, "explain", *arguments], cwd=place, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done

    return attend


def calls(place):
    """Of each call: the program's name, how many arguments it had, and those."""
    path = place / "called"
    lines = iter(path.read_text().splitlines() if path.exists() else [])
    return [(pathlib.Path(line).name, [next(lines) for _ in range(int(next(lines)))]) for line in lines]


def notes(done):
    """What was told besides that a page does not compute, which depends on how the library was built."""
    return [line for line in done.stderr.splitlines() if "does not compute" not in line]


def test_the_desktop_is_asked_for_a_page_in_the_cache(explain, place):
    program(place, "xdg-open")
    done = explain("the cat sat", "--open")
    page = place / "home/.cache/attend/explain.html"
    assert done.stdout == "" and notes(done) == [f"attend: wrote {page}"]
    assert calls(place) == [("xdg-open", [str(page)])]
    assert page.read_text().startswith("<!doctype html>") and "the cat sat" in page.read_text()
    assert os.listdir(page.parent) == ["explain.html"]
    explain("a dog", "--open", XDG_CACHE_HOME=str(place / "x y"))
    assert "a dog" in (place / "x y/attend/explain.html").read_text()
    explain("a bird", "--open", XDG_CACHE_HOME="relative")  # the specification has such a one ignored
    assert "a bird" in page.read_text() and not (place / "relative").exists()


def test_a_page_that_is_written_anyway_is_the_one_that_opens(explain, place):
    program(place, "xdg-open")
    done = explain("the cat", "--open", "-o", "a.svg", "-o", "b c.html", "--json")
    assert done.stdout.startswith("{") and notes(done) == ["attend: wrote a.svg", "attend: wrote b c.html"]
    assert calls(place) == [("xdg-open", [str(place / "b c.html")])]
    assert not (place / "home/.cache").exists()


def test_browser_comes_first(explain, place):
    program(place, "xdg-open")
    program(place, "fails", status=1)
    program(place, "shows")
    explain("--open", BROWSER="w3m %s:missing:fails:shows:xdg-open")
    assert [name for name, _ in calls(place)] == ["fails", "shows"]
    explain("--open", BROWSER=str(place / "bin/shows"))
    explain("--open", BROWSER="missing")
    explain("--open", BROWSER="")
    assert [name for name, _ in calls(place)][2:] == ["shows", "xdg-open", "xdg-open"]


def test_no_shell_reads_the_name(explain, place):
    program(place, "xdg-open")
    explain("--open", "-o", "$(touch shelled);'\".html")
    assert calls(place) == [("xdg-open", [str(place / "$(touch shelled);'\".html")])]
    assert not (place / "shelled").exists()


@pytest.mark.parametrize("failing", [False, True], ids=["there is none", "it fails"])
def test_where_nothing_opens_it_the_page_is_named(explain, place, failing):
    if failing:
        program(place, "xdg-open", status=3)
    page = place / "home/.cache/attend/explain.html"
    assert notes(explain("--open")) == [f"attend: wrote {page}",
                                        f"attend: no browser opened the page (tried $BROWSER and xdg-open): open {page} yourself"]
    assert page.exists()


def test_a_browser_that_goes_on_is_left_to_itself(explain, place):
    """And writes to no terminal, nor keeps the command's pipes open. It ends when it is told to, which is after the command."""
    os.mkfifo(place / "end")
    os.mkfifo(place / "ended")
    program(place, "xdg-open", does=f'echo noise; echo noise >&2; read word <"{place}/end"; echo "$word" >"{place}/ended"')
    done = explain("--open")
    assert "noise" not in done.stdout + done.stderr and "yourself" not in done.stderr
    (place / "end").write_text("late\n")
    assert (place / "ended").read_text() == "late\n"


def test_a_cache_that_cannot_be_made(explain, place):
    (place / "home/.cache").write_text("a file")
    assert str(place / "home/.cache/attend") in explain("--open", status=1).stderr
    assert "neither XDG_CACHE_HOME nor HOME" in explain("--open", status=1, HOME="").stderr
    assert calls(place) == []


def test_a_page_says_why_it_does_not_compute(explain, place):
    program(place, "xdg-open")
    computes = 'id="request"' in (explain("a b", "-o", "a.html") and (place / "a.html").read_text())
    lines = [line for line in explain("a b", "-o", "a.html").stderr.splitlines() if "does not compute" in line]
    built_without = "attend: a.html does not compute: attend was built without the page that computes, which `make page` makes"
    assert lines == ([] if computes else [built_without])
    many = explain("w " * 201, "-o", "a.html", "-o", "a.svg").stderr.splitlines()
    assert [line.split(":")[1] for line in many if "more than 200 words" in line] == [" a.html does not compute"]
    assert 'id="request"' not in (place / "a.html").read_text() and "attend show" in (place / "a.html").read_text()
