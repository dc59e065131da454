"""Files to and from NumPy and the safetensors package, bit for bit, by way of attend_convert (tests/io/convert.cpp)."""

import io
import json
import pathlib
import subprocess
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

DTYPES = ["<f2", "<f4", "<f8", "<i8", "|i1", "|u1", "|b1"]
SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 5), (1, 2, 1, 2, 1, 2, 1, 2), (257, 3)]
NAMES = ["plain", "größe", "名前/重み", "with space", "a.b.c", 'quote" and \\']


def random_array(shape, dtype, seed=0):
    """Any bits at all, NaNs of every kind among them."""
    generator = np.random.default_rng([seed, len(shape), *shape])
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    count = int(np.prod(shape))
    return np.frombuffer(generator.bytes(count * dtype.itemsize), dtype).reshape(shape)


def many_arrays():
    arrays = {}
    for dtype in DTYPES:
        for i, shape in enumerate(SHAPES):
            arrays[f"{NAMES[i % len(NAMES)]} {dtype} {i}"] = random_array(shape, dtype, i)
    return arrays


def assert_same(actual, expected):
    assert actual.dtype.newbyteorder("<") == expected.dtype.newbyteorder("<")
    assert actual.shape == expected.shape
    assert actual.astype(actual.dtype.newbyteorder("<")).tobytes() == expected.astype(
        expected.dtype.newbyteorder("<")
    ).tobytes()


def assert_all_same(actual, expected):
    assert sorted(actual) == sorted(expected)
    for name in expected:
        assert_same(actual[name], expected[name])


def npz_bytes(arrays, save=np.savez):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


@pytest.fixture
def convert(command, tmp_path):
    """convert(bytes, kind, to): the file of that kind with that content, as a file of another kind."""

    def run(content, kind, to):
        source, target = tmp_path / f"in.{kind}", tmp_path / f"out.{to}"
        source.write_bytes(content)
        done = subprocess.run([pathlib.Path(command).parent / "attend_convert", source, target], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(tmp_path.iterdir()) == sorted({source, target})
        return target

    return run


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_npy_is_written_byte_for_byte_as_numpy_does(convert, shape, dtype):
    file = io.BytesIO()
    np.save(file, random_array(shape, dtype))
    assert convert(file.getvalue(), "npy", "npy").read_bytes() == file.getvalue()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("byte_order", ["<", ">"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_any_order_and_version_is_read(convert, dtype, order, byte_order, version):
    for shape in [(), (2, 3, 5)]:
        array = random_array(shape, dtype)
        file = io.BytesIO()
        swapped = np.asarray(array.astype(array.dtype.newbyteorder(byte_order)), order=order)
        np.lib.format.write_array(file, swapped, version)
        assert_same(np.load(convert(file.getvalue(), "npy", "npy")), array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_to_npz(convert, save):
    arrays = many_arrays()
    path = convert(npz_bytes(arrays, save), "npz", "npz")
    assert zipfile.ZipFile(path).testzip() is None
    with np.load(path) as actual:
        assert_all_same(dict(actual), arrays)


def test_npz_to_safetensors(convert):
    arrays = many_arrays()
    path = convert(npz_bytes(arrays), "npz", "safetensors")
    assert_all_same(safetensors.numpy.load_file(path), arrays)
    assert path.read_bytes() == safetensors.numpy.save(arrays)


def test_safetensors_to_npz(convert):
    arrays = many_arrays()
    with np.load(convert(safetensors.numpy.save(arrays), "safetensors", "npz")) as actual:
        assert_all_same(dict(actual), arrays)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {'key"\n': "größe \x01\x7f\\"}], ids=str)
def test_safetensors_is_written_byte_for_byte_as_the_package_does(convert, metadata):
    content = safetensors.numpy.save(many_arrays(), metadata)
    assert convert(content, "safetensors", "safetensors").read_bytes() == content


def test_metadata_of_several_keys_is_kept(convert):
    metadata = {"b": "2", "a": "1", "c": "3"}
    path = convert(safetensors.numpy.save({"x": np.zeros(1)}, metadata), "safetensors", "safetensors")
    with safetensors.safe_open(path, "np") as file:  # the package writes the keys in no fixed order
        assert file.metadata() == metadata


def test_bf16_goes_through_safetensors_as_bits(convert):
    arrays = {}
    for i, shape in enumerate(SHAPES):
        bits = random_array(shape, "<u2", i) if shape != () else np.array(0x3F80, "<u2")
        arrays[f"{NAMES[i % len(NAMES)]} {i}"] = bits.view(ml_dtypes.bfloat16)
    content = safetensors.numpy.save(arrays)
    path = convert(content, "safetensors", "safetensors")
    assert path.read_bytes() == content
    back = {name: bytes(tensor["data"]) for name, tensor in safetensors.deserialize(path.read_bytes())}
    assert back == {name: array.tobytes() for name, array in arrays.items()}


def test_all_dtypes_in_one_file_come_in_the_order_of_the_package(convert):
    dtypes = [*DTYPES, ml_dtypes.bfloat16]
    arrays = {f"{prefix}{np.dtype(dtype).name}": np.zeros(2, dtype) for prefix in "ba" for dtype in dtypes}
    content = safetensors.numpy.save(arrays)
    assert convert(content, "safetensors", "safetensors").read_bytes() == content


def test_a_header_that_another_program_wrote_is_read(convert):
    header = json.dumps(
        {"b": {"data_offsets": [4, 8], "shape": [1], "dtype": "F32"}, "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}},
        indent=1,
    ).encode()
    data = bytes([1, 2, 3, 4]) + np.float32(5).tobytes()
    path = convert(len(header).to_bytes(8, "little") + header + data, "safetensors", "npz")
    with np.load(path) as actual:
        assert_all_same(dict(actual), {"a": np.array([1, 2, 3, 4], "u1"), "b": np.array([5], "f4")})
