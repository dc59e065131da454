"""`cmake --install` gives a tree that works wherever it stands, and that a program can be built against."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent


def output_of(*command, **options):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def prefix(command, tmp_path_factory):
    build = pathlib.Path(command).parent
    if not (build / "CMakeCache.txt").exists():
        pytest.skip("the command does not stand in its build folder")
    there = tmp_path_factory.mktemp("install")
    output_of("cmake", "--install", build, "--prefix", there / "first")
    # Moved, so that nothing works by way of the place where it was installed.
    (there / "first").rename(there / "moved")
    return there / "moved"


def library_folder(prefix):
    return next(prefix.glob("lib/**/libattend.*")).parent


def test_installed_command(prefix, command):
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    installed = prefix / "bin" / "attend"
    assert output_of(installed, "--version", env=environment) == output_of(command, "--version")
    if shutil.which("ldd"):
        loaded = [line for line in output_of("ldd", installed, env=environment).splitlines() if "libattend" in line]
        assert all(str(prefix) in os.path.realpath(line.split()[2]) for line in loaded)


def test_the_python_package_is_not_installed_with_it(prefix):
    assert {path.name for path in prefix.iterdir()} - {"libexec"} == {"bin", "include", "lib", "share"}


def test_man_page_and_completions(prefix, command):
    assert (prefix / "share/man/man1/attend.1").read_text().startswith(".Dd")
    for shell, place in [("bash", "bash-completion/completions/attend"), ("zsh", "zsh/site-functions/_attend"),
                         ("fish", "fish/vendor_completions.d/attend.fish")]:
        assert (prefix / "share" / place).read_text() == output_of(command, "completion", shell)


def test_headers_are_the_public_ones(prefix, repository):
    installed = {path.name for path in (prefix / "include/attend").iterdir()}
    with_mpi = {"mpi.h"} if list(library_folder(prefix).glob("libattend_mpi.*")) else set()
    assert installed == {path.name for path in (repository / "include/attend").iterdir()} - {"mpi.h"} | with_mpi


def test_find_package(prefix, tmp_path):
    output_of("cmake", "-S", HERE / "program", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    output_of("cmake", "--build", tmp_path)
    assert output_of(tmp_path / "program") == output_of(prefix / "bin/attend", "--version").strip() + EXPECTED


def test_pkg_config(prefix, tmp_path):
    libraries = library_folder(prefix)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    static = ["--static"] if not (libraries / "libattend.so").exists() else []
    flags = output_of("pkg-config", *static, "--cflags", "--libs", "attend", env=environment).split()
    output_of("c++", "-std=c++20", HERE / "program/program.cpp", *flags, f"-Wl,-rpath,{libraries}", "-o", tmp_path / "program")
    version = output_of("pkg-config", "--modversion", "attend", env=environment)
    said = output_of(prefix / "bin/attend", "--version").strip()
    assert said.split("-rc")[0] == f"attend {version.strip()}"  # a candidate's number stands in its text alone
    assert output_of(tmp_path / "program") == said + EXPECTED


@pytest.fixture
def mpirun(prefix, command):
    if not list(library_folder(prefix).glob("libattend_mpi.*")):
        pytest.skip("built without MPI: make mpi")
    cache = (pathlib.Path(command).parent / "CMakeCache.txt").read_text()
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def cached(name):
        return re.search(rf"^{name}:\w+=(.*)$", cache, re.M)[1]

    def run(*arguments, **options):
        return output_of(cached("MPIEXEC_EXECUTABLE"), "-n", 2, *arguments, env=environment, **options)

    run.compiler = cached("MPI_CXX_COMPILER")
    return run


def test_find_package_with_mpi(prefix, tmp_path, mpirun):
    output_of("cmake", "-S", HERE / "mpi_program", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DMPI_CXX_COMPILER={mpirun.compiler}")
    output_of("cmake", "--build", tmp_path)
    assert mpirun(tmp_path / "mpi_program") == "2 ranks, 1.0\n"


def test_pkg_config_with_mpi(prefix, tmp_path, mpirun):
    libraries = library_folder(prefix)
    environment = {**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    flags = output_of("pkg-config", "--cflags", "--libs", "attend-mpi", env=environment).split()
    source = HERE / "mpi_program/mpi_program.cpp"
    output_of(mpirun.compiler, "-std=c++20", source, *flags, f"-Wl,-rpath,{libraries}", "-o", tmp_path / "program")
    assert mpirun(tmp_path / "program") == "2 ranks, 1.0\n"


def test_a_component_that_is_not_there_is_said(prefix, tmp_path):
    """Not by a target that is missing."""
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n"
                                             "find_package(attend CONFIG REQUIRED COMPONENTS gpu)\n")
    done = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "This attend has no component gpu" in " ".join(done.stderr.split())


def test_the_installed_command_finds_its_other_half(prefix, tmp_path, mpirun):
    np.save(tmp_path / "x.npy", np.ones((1, 2, 300, 8), np.float32))
    mpirun(prefix / "bin/attend", "run", "x.npy", "x.npy", "x.npy", "-o", "out.npy", cwd=tmp_path)
    assert (np.load(tmp_path / "out.npy") == 1).all()


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_the_library_exports_what_its_headers_declare(prefix):
    library = library_folder(prefix) / "libattend.so"
    if not library.exists():
        pytest.skip("a static library")
    symbols = [line.split(maxsplit=2)[2] for line in output_of("nm", "-DC", "--defined-only", library).splitlines()]
    assert "typeinfo for attend::v1::Error" in symbols
    headers = "".join(path.read_text() for path in (prefix / "include/attend").iterdir())
    declared = set(re.findall(r"\w+", headers))
    for symbol in symbols:
        name = symbol.removeprefix("typeinfo for ").removeprefix("typeinfo name for ").removeprefix("vtable for ")
        if " std::" in name.split("(")[0]:
            continue  # unoptimised builds: a weak template of std:: that returns one of our types
        assert name.startswith("attend::v1::") and re.findall(r"\w+", name)[2] in declared, symbol


EXPECTED = " 0.6698 caught\n"
