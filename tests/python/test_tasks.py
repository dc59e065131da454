"""The pairs of texts of tests/tasks, which examples/estimated_heads.py reads: one word apart, and each answer as its text says."""

import csv
import pathlib

import pytest

TASKS = pathlib.Path(__file__).parents[1] / "tasks"


def pairs_of(name):
    with open(TASKS / name, newline="") as file:
        pairs = list(csv.DictReader(file, delimiter="\t"))
    assert len(pairs) == 20
    return pairs


@pytest.mark.parametrize("name", ["names.tsv", "pronouns.tsv"])
def test_a_pair_is_one_word_apart(name):
    for pair in pairs_of(name):
        clean, corrupt = pair["clean"].split(), pair["corrupt"].split()
        assert len(clean) == len(corrupt) and sum(a != b for a, b in zip(clean, corrupt)) == 1
        assert pair["token"] != pair["against"] and pair["token"].startswith(" ") and pair["against"].startswith(" ")


def test_who_gets_it_is_who_does_not_give_it():
    """Of two names the one that stands once; in the corrupt text the other one does."""
    for pair in pairs_of("names.tsv"):
        for text, once in ((pair["clean"], pair["token"]), (pair["corrupt"], pair["against"])):
            words = text.replace(",", "").split()
            assert words.count(once.strip()) == 1 and {words.count(pair[name].strip()) for name in ("token", "against")} == {1, 2}


def test_each_pronoun_comes_as_often():
    answers = [pair["token"] for pair in pairs_of("pronouns.tsv")]
    assert answers.count(" he") == answers.count(" she") == 10
