"""What the Python tests share: where the command is."""

import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--command", required=True, help="the attend command to test, such as build/release/attend")


@pytest.fixture(scope="session")
def command(request):
    """The command's absolute path."""
    return pathlib.Path(request.config.getoption("--command")).resolve(strict=True)
