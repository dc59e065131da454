"""The wheels in --wheels: each is complete, and works in an environment that has NumPy alone."""

import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

# The C++ runtime and the C library are the system's, as manylinux has it.
SYSTEM = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|gcc_s|stdc\+\+|dl|rt|pthread)(-|\.so).*|libz\.so\.1)")
PROGRAM = """
import pathlib, sys
import numpy, attend
x = numpy.random.default_rng(0).standard_normal((1, 4, 700, 32), numpy.float32)
scores = x @ x.swapaxes(2, 3) / 32**0.5
weights = numpy.exp(scores - scores.max(-1, keepdims=True))
assert numpy.abs(attend.attention(x, x, x) - weights / weights.sum(-1, keepdims=True) @ x).max() < 1e-5
assert attend.explain("the cat sat").to_png().startswith(b"\\x89PNG")
assert 'id="request"' in attend.explain("the cat sat").to_html()
json = r'''{"version": "1.0", "normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\\\p{L}+"},
"behavior": "Isolated", "invert": false}, "model": {"type": "WordPiece", "unk_token": "?", "max_input_chars_per_word": 100,
"continuing_subword_prefix": "##", "vocab": {"?": 0, "\u00e9t": 1, "##\u00e9": 2, "1": 3}}}'''
assert attend.Tokenizer(json).encode("e\u0301t\u00e91").ids.tolist() == [1, 2, 3]
folder = pathlib.Path(attend.__file__).parent
used = {pathlib.Path(line.split()[-1]) for line in open("/proc/self/maps") if ".so" in line}
brought = {path.name.split("-")[0] for path in used if path.parent == folder.with_name("attend_cpu.libs")}
assert {"libtbb", "libpcre2", "libutf8proc"} <= brought, brought
print("works on", sys.version.split()[0], attend.__version__)
"""


def wheels(config):
    folder = config.getoption("--wheels")
    if folder is None:
        return [pytest.param(None, marks=pytest.mark.skip(reason="no wheels were given: --wheels FOLDER (make wheel)"))]
    return [pytest.param(path, id=path.name) for path in sorted(folder.glob("*.whl"))]


def pytest_generate_tests(metafunc):
    metafunc.parametrize("wheel", wheels(metafunc.config))


def pythons():
    """One interpreter of each version from 3.11 on that this machine has."""
    found = {}
    folders = [*pathlib.Path.home().glob(".pyenv/versions/*/bin"), pathlib.Path("/usr/bin"), pathlib.Path("/usr/local/bin")]
    for path in [pathlib.Path(sys.executable), *(path for folder in folders for path in folder.glob("python3.1[1-9]"))]:
        answer = subprocess.run([path, "-c", "import sys, ensurepip; print(*sys.version_info[:2])"], capture_output=True, text=True)
        if answer.returncode == 0:
            found.setdefault(tuple(map(int, answer.stdout.split())), path)
    return found


def test_it_is_installed_and_works(wheel, tmp_path):
    least = re.search(r"-cp(\d)(\d+)-(abi3)?", wheel.name)
    version = (int(least[1]), int(least[2]))
    fitting = {v: path for v, path in pythons().items() if v == version or (least[3] and v > version)}
    assert fitting, f"no Python {version} here"
    for python in fitting.values():
        environment = tmp_path / python.name
        subprocess.run([python, "-m", "venv", environment], check=True)
        subprocess.run([environment / "bin/pip", "install", "-q", wheel], check=True)
        answer = subprocess.run([environment / "bin/python", "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
        assert answer.stdout.startswith("works on"), answer.stderr
        outputs = [subprocess.run([*how, "explain", "the cat sat"], capture_output=True, text=True, cwd=tmp_path, check=True).stdout
                   for how in ([environment / "bin/attend"], [environment / "bin/python", "-m", "attend"])]
        assert outputs[0] == outputs[1] and "the cat sat" in outputs[0]


def test_it_brings_its_libraries(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    module = next((tmp_path / "attend").glob("_core*.so"))
    needed = re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", module], capture_output=True, text=True).stdout)
    brought = {path.name for path in (tmp_path / "attend_cpu.libs").iterdir()}
    assert any(name.startswith("libtbb") for name in brought)
    assert {name for name in needed if not SYSTEM.fullmatch(name)} <= brought
    assert {"__init__.py", "_core.pyi", "py.typed", "onnx.py"} <= {path.name for path in (tmp_path / "attend").iterdir()}
    licenses = {path.name for path in tmp_path.glob("attend_cpu-*.dist-info/licenses/*") if path.stat().st_size > 500}
    others = {re.sub(r"-[0-9a-f]{8}\.so", ".so", name) + ".txt" for name in brought}
    assert licenses == {"LICENSE", "NOTICE"} | others
