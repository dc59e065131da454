"""attend.VectorFile, beside NumPy's own search."""

import subprocess

import numpy
import pytest
import tiny

import attend


def cosines(rows, query):
    rows, query = rows.astype(numpy.float64), query.astype(numpy.float64)
    lengths = numpy.linalg.norm(rows, axis=1) * numpy.linalg.norm(query)
    return numpy.divide(rows @ query, lengths, out=numpy.zeros(len(rows)), where=lengths > 0)


@pytest.mark.parametrize("count, size", [(1, 1), (7, 3), (1000, 33)])
def test_the_nearest_are_numpys(count, size, tmp_path):
    random = numpy.random.default_rng(count)
    rows = random.standard_normal((count, size), numpy.float32)
    rows[count // 2] = rows[0]  # of equal ones the first
    rows[count // 3] = 0
    numpy.save(tmp_path / "v.npy", rows)
    vectors = attend.VectorFile(tmp_path / "v.npy")
    assert len(vectors) == count and repr(vectors) == f"<attend.VectorFile: {count} vectors of {size}>"
    numpy.testing.assert_array_equal(vectors.rows, rows)
    queries = random.standard_normal((5, size), numpy.float32)
    assert vectors.nearest_each(queries, 4) == [vectors.nearest(query, 4) for query in queries]
    assert vectors.nearest_each(queries[:0]) == []
    for query in queries:
        expected = cosines(rows, query)
        order = numpy.argsort(-expected, kind="stable")
        for k in {1, min(5, count), count, count + 5}:
            found = vectors.nearest(query, k)
            assert len(found) == min(k, count)
            numpy.testing.assert_allclose([each.similarity for each in found], expected[order[:k]], atol=1e-6)
            numpy.testing.assert_allclose([expected[each.row] for each in found], expected[order[:k]], atol=1e-6)
        both = [each.row for each in vectors.nearest(query, count) if each.row in (0, count // 2)]
        assert both == sorted(both)


def test_rows_look_into_the_file_and_keep_it(tmp_path):
    numpy.save(tmp_path / "v.npy", numpy.eye(3, dtype=numpy.float32))
    rows = attend.VectorFile(str(tmp_path / "v.npy")).rows
    assert rows.tolist() == numpy.eye(3).tolist() and not rows.flags.writeable and not rows.flags.owndata


def test_what_the_command_wrote_and_finds(command, tmp_path):
    folder = tiny.write(tmp_path / "tiny")
    lines = ["the cat sat", "word7 word8", "the the", "cat", "sat cat"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    subprocess.run([command, "embed", folder, "lines.txt", "-o", "v.npy"], cwd=tmp_path, check=True)
    model = attend.Model.load(folder)
    vectors = attend.VectorFile(tmp_path / "v.npy")
    numpy.testing.assert_array_equal(vectors.rows, model.embed(lines))
    found = vectors.nearest(model.embed("the cat")[0], k=3)
    printed = subprocess.run([command, "near", "v.npy", "lines.txt", folder, "the cat", "-k", "3"], cwd=tmp_path, check=True,
                             capture_output=True, text=True).stdout
    assert [line.split(maxsplit=2)[:2] for line in printed.splitlines()[1:]] == [
        [f"{similarity:.4f}", f"{row + 1}"] for row, similarity in found]


def test_what_does_not_fit_is_refused(tmp_path):
    numpy.save(tmp_path / "v.npy", numpy.eye(3, 4, dtype=numpy.float32))
    vectors = attend.VectorFile(tmp_path / "v.npy")
    query = numpy.ones(4, numpy.float32)
    for wrong, kind, words in [(query[:3], ValueError, "query"), (query[None, None], ValueError, "query"),
                               (query[None], ValueError, "query"),
                               (query.astype(numpy.float64), TypeError, "float32"),
                               ([1, 2, 3, 4], TypeError, "query: expected an array")]:
        with pytest.raises(kind, match=f"^VectorFile.nearest: .*{words}"):
            vectors.nearest(wrong)
    with pytest.raises(ValueError, match=r"^VectorFile.nearest_each: .*expected \[Q,4\]"):
        vectors.nearest_each(numpy.ones((2, 3), numpy.float32))
    with pytest.raises(ValueError, match="^VectorFile.nearest: k is 0"):
        vectors.nearest(query, 0)
    for name, content in {"none.npy": None, "text.npy": b"text"}.items():
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(OSError, match=f"^VectorFile: .*{name}"):
            attend.VectorFile(tmp_path / name)
    numpy.save(tmp_path / "double.npy", numpy.eye(3))
    with pytest.raises(OSError, match="^VectorFile: .*double.npy"):
        attend.VectorFile(tmp_path / "double.npy")
