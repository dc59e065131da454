"""What docs/promises.md says of names and files: nothing that 1.0 had is gone, and what it wrote opens."""

import json

import numpy
import promised
import pytest
import tiny

GOLDEN = promised.GOLDEN


@pytest.mark.parametrize("where", ["python", "command", "json"])
def test_no_name_of_the_release_is_gone(where, command, tmp_path):
    then = json.loads((GOLDEN / "names.json").read_text())[where]
    now = promised.names(command, tiny.write(tmp_path / "model"))[where]
    assert len(then) > 4 and sum(map(len, then.values())) > 100
    assert {name: parts for name, parts in then.items() if name not in now} == {}
    assert {name: gone for name, parts in then.items() if (gone := set(parts) - set(now[name]))} == {}


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("files-*")), ids=lambda folder: folder.name)
def test_what_a_release_wrote_opens_with_its_numbers(folder):
    then, now = json.loads((folder / "numbers.json").read_text()), promised.numbers_of(folder)
    assert list(now) == list(then)

    def compare(a, b, where):
        if isinstance(a, dict):
            assert list(a) == list(b), where
            for key in a:
                compare(a[key], b[key], f"{where}.{key}")
        elif isinstance(a, list) and a and not isinstance(a[0], str):
            numpy.testing.assert_allclose(b, a, rtol=1e-4, atol=2e-5, err_msg=where)
        else:
            assert a == b, where

    compare(then, now, folder.name)
