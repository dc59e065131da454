"""What the Python tests share: where the command and the repository are."""

import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--command", default="build/release/attend", help="the command to test")
    parser.addoption("--wheels", type=pathlib.Path, help="a folder of wheels to test (make wheel)")
    parser.addoption("--fuzz-cases", type=int, default=300, help="how many random calls tests/python/test_fuzz.py makes")
    parser.addoption("--fuzz", action="store_true", help="make random calls until one fails")


@pytest.fixture(scope="session")
def command(request):
    """The command's absolute path."""
    return str(pathlib.Path(request.config.getoption("--command")).resolve(strict=True))


@pytest.fixture(scope="session")
def repository():
    return pathlib.Path(__file__).resolve().parent.parent
