"""Writes tests/golden/files/: small files as NumPy and the safetensors package write them.

Run it from the repository's root, with the versions of tests/requirements.txt: python tests/golden/make_files_golden.py
Every array holds 0, 1, 2, ... in row-major order (bool: modulo 2) unless its name says otherwise.
"""

import io
import pathlib
import zipfile

import numpy as np
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent / "files"
DTYPES = {"f16": "<f2", "f32": "<f4", "f64": "<f8", "i64": "<i8", "i8": "|i1", "u8": "|u1", "bool": "|b1"}


def counting(shape, dtype="<f4"):
    values = np.arange(int(np.prod(shape)))
    if np.dtype(dtype).kind == "b":
        values = values % 2
    return values.astype(dtype).reshape(shape)


def save_npy(name, array, version=None):
    with open(FOLDER / f"{name}.npy", "wb") as file:
        np.lib.format.write_array(file, array, version)


def save_streamed_npz(name, arrays):
    """As to a pipe: sizes and checksums follow the members in data descriptors."""

    class Pipe(io.RawIOBase):
        def __init__(self):
            self.bytes = b""

        def writable(self):
            return True

        def write(self, data):
            self.bytes += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array)
    (FOLDER / f"{name}.npz").write_bytes(pipe.bytes)


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, dtype in DTYPES.items():
        save_npy(name, counting((2, 3), dtype))
        if np.dtype(dtype).itemsize > 1:
            save_npy(f"{name}_big_endian", counting((2, 3), dtype.replace("<", ">")))
    save_npy("scalar", np.array(7, "<f8"))
    save_npy("empty", counting((3, 0, 2)))
    save_npy("one_axis", counting((5,)))
    save_npy("rank_8", counting((1, 2, 1, 2, 1, 2, 1, 2)))
    save_npy("fortran", np.asfortranarray(counting((2, 3, 4))))
    save_npy("fortran_big_endian", np.asfortranarray(counting((2, 3), ">i8")))
    save_npy("version_2", counting((2, 3)), (2, 0))
    save_npy("version_3", counting((2, 3)), (3, 0))
    save_npy("object", np.array([None, "text"], object))
    save_npy("complex", counting((2,), "<c16"))
    save_npy("structured", np.zeros(2, [("x", "<f4"), ("y", "<i4")]))
    save_npy("int32", counting((2,), "<i4"))

    arrays = {name: counting((2, 3), dtype) for name, dtype in DTYPES.items()}
    arrays |= {"scalar": np.array(7, "<f8"), "empty": counting((3, 0, 2)), "größe": counting((5,))}
    np.savez(FOLDER / "savez.npz", **arrays)
    np.savez_compressed(FOLDER / "savez_compressed.npz", **arrays)
    np.savez(FOLDER / "no_members.npz")
    save_streamed_npz("streamed", arrays)
    save_file(arrays, FOLDER / "all.safetensors", {"format": "np"})
    save_file({}, FOLDER / "no_tensors.safetensors")


if __name__ == "__main__":
    main()
