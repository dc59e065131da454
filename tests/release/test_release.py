"""What scripts/release.sh made, in --release: each part is complete, small and works where nothing of ours is installed."""

import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

MACHINES = ("x86_64", "aarch64")
# The C library alone is the system's.
SYSTEM = re.compile(r"(ld-linux-(x86-64|aarch64)\.so\.[12]|lib(c|m|dl|rt|pthread)\.so\.[0-9]|libc\.musl-(x86_64|aarch64)\.so\.1)")
LINKED = ["cli11", "fmtlib", "freetype", "libpng1.6", "nlohmann-json3", "onetbb", "pcre2", "utf8proc", "zlib", "libc++"]
PROGRAM = pathlib.Path(__file__).parent / "use.py"


def pytest_generate_tests(metafunc):
    folder = metafunc.config.getoption("--release")
    missing = [pytest.param(None, marks=pytest.mark.skip(reason="no release was given: --release FOLDER (scripts/release.sh)"))]
    if "wheel" in metafunc.fixturenames:
        metafunc.parametrize("wheel", [pytest.param(path, id=path.name) for path in sorted(folder.glob("*.whl"))] if folder else missing)
    if "machine" in metafunc.fixturenames:
        metafunc.parametrize("machine", MACHINES if folder else missing)
    if "folder" in metafunc.fixturenames:
        metafunc.parametrize("folder", [folder] if folder else missing)


def pythons():
    """One interpreter of each version from 3.10 on that this machine has."""
    found = {}
    folders = [*pathlib.Path.home().glob(".pyenv/versions/*/bin"), pathlib.Path("/usr/bin"), pathlib.Path("/usr/local/bin")]
    for path in [pathlib.Path(sys.executable), *(path for folder in folders for path in folder.glob("python3.1[0-9]"))]:
        answer = subprocess.run([path, "-c", "import sys, ensurepip; print(*sys.version_info[:2])"], capture_output=True, text=True)
        if answer.returncode == 0:
            found.setdefault(tuple(map(int, answer.stdout.split())), path)
    return found


def needed(file):
    text = subprocess.run(["objdump", "-p", file], capture_output=True, text=True).stdout
    return set(re.findall(r"NEEDED\s+(\S+)", text))


def test_there_is_a_wheel_for_every_python_and_machine(folder):
    form = re.compile(r"-(cp\d+-\w+)-(\w+linux)[\w.]*_(x86_64|aarch64)\.whl")
    tags = {form.search(path.name).groups() for path in folder.glob("*.whl")}
    kinds = ("cp310-cp310", "cp311-cp311", "cp312-abi3")
    assert tags == {(kind, library, machine) for kind in kinds for library in ("manylinux", "musllinux") for machine in MACHINES}
    assert all("manylinux_2_17" in path.name or "musllinux" in path.name for path in folder.glob("*.whl"))


def test_a_wheel_is_complete_and_small(wheel, tmp_path):
    assert wheel.stat().st_size < 30e6
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for file in (next((tmp_path / "attend").glob("_core*.so")), tmp_path / "attend/bin/attend"):
        assert {name for name in needed(file) if not SYSTEM.fullmatch(name)} == set()
    assert {"__init__.py", "_core.pyi", "py.typed", "onnx.py"} <= {path.name for path in (tmp_path / "attend").iterdir()}
    licences = {path.name for path in tmp_path.glob("attend_cpu-*.dist-info/licenses/*") if path.stat().st_size > 500}
    musl = ["musl"] if "musllinux" in wheel.name else []
    assert licences == {"LICENSE", "NOTICE", *(f"{name}.txt" for name in [*LINKED, "nanobind", *musl])}


def test_a_wheel_is_installed_and_works(wheel, tmp_path):
    if "manylinux" not in wheel.name or platform.machine() not in wheel.name:
        pytest.skip("for another machine or C library: scripts/test_release.sh")
    least = re.search(r"-cp(\d)(\d+)-(abi3)?", wheel.name)
    version = (int(least[1]), int(least[2]))
    fitting = {v: path for v, path in pythons().items() if v == version or (least[3] and v > version)}
    assert fitting, f"no Python {version} here"
    for python in fitting.values():
        environment = tmp_path / python.name
        subprocess.run([python, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "-q", wheel], check=True)
        answer = subprocess.run([environment / "bin/python", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
        assert answer.stdout.startswith("works on"), answer.stderr
        outputs = [subprocess.run([*how, "explain", "the cat sat"], capture_output=True, text=True, cwd=tmp_path, check=True).stdout
                   for how in ([environment / "bin/attend"], [environment / "bin/python", "-m", "attend"])]
        assert outputs[0] == outputs[1] and "the cat sat" in outputs[0]


def test_the_command_is_one_file_that_needs_nothing(folder, machine, tmp_path):
    archive, = folder.glob(f"attend-*-linux-{machine}.tar.xz")
    with tarfile.open(archive) as content:
        content.extractall(tmp_path, filter="data")
    command, = tmp_path.glob("*/attend")
    assert command.stat().st_size < 15e6
    assert needed(command) == set() and "INTERP" not in subprocess.run(["objdump", "-p", command], capture_output=True, text=True).stdout
    run = [command]
    if machine != platform.machine():
        run = [shutil.which(f"qemu-{machine}") or pytest.skip(f"qemu-{machine} is not installed"), command]
    empty = {"PATH": "", "HOME": str(tmp_path)}
    said = subprocess.run([*run, "--diagnose"], capture_output=True, text=True, env=empty, check=True).stdout
    assert "with pages that compute" in said and re.search(r"^kernels +\w+, the fastest", said, re.M)
    subprocess.run([*run, "explain", "the cat sat", "-o", "cat.html", "-o", "cat.png"], env=empty, cwd=tmp_path, check=True)
    assert 'id="request"' in (tmp_path / "cat.html").read_text() and (tmp_path / "cat.png").read_bytes().startswith(b"\x89PNG")
    licences = {path.stem for path in tmp_path.glob("*/licences/*.txt") if path.stat().st_size > 500}
    assert licences == {*LINKED, "musl"}


def test_the_sums_and_the_bill_of_materials_name_everything(folder):
    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == set(os.listdir(folder)) - {"SHA256SUMS"}
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    bill = json.loads(next(folder.glob("*.cdx.json")).read_text())
    assert {part["name"] for part in bill["components"]} >= {*LINKED, "nanobind", "musl", "DejaVu Sans"}
