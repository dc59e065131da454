"""What the Python tests share: where the command and the repository are, and what is left out without PyTorch."""

import importlib.util
import pathlib

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent

collect_ignore = [] if importlib.util.find_spec("torch") else ["pytorch"]
pytest.register_assert_rewrite("arrays", "documentation", "head_oracle", "onnx_cases", "pages")


def pytest_terminal_summary(terminalreporter):
    for folder in collect_ignore:
        files = len(list((REPOSITORY / "tests" / folder).glob("test_*.py")))
        terminalreporter.write_line(f"left out: the {files} files of tests/{folder}, which need PyTorch: make test WITH=torch")


def pytest_addoption(parser):
    parser.addoption("--command", default="build/release/attend", help="the command to test")
    parser.addoption("--release", type=pathlib.Path, help="what scripts/release.sh made, to test")
    parser.addoption("--site", type=pathlib.Path, help="the documentation's site to test (make docs)")
    parser.addoption("--every-model", action="store_true", help="test all model types of transformers, not a dozen")
    parser.addoption("--every-text", action="store_true", help="all of what tests/pytorch/test_tokenizer.py compares, not a twentieth")
    parser.addoption("--every-mutation", action="store_true", help="all that tests/pytorch/test_model_config.py changes, not 25 of each")
    parser.addoption("--every-build", action="store_true", help="compile the library as a project that takes it in, too: minutes")
    parser.addoption("--every-number", action="store_true", help="all numbers of the docs, those too that take a minute or an hour")
    parser.addoption("--fuzz-cases", type=int, default=300, help="how many random calls tests/pytorch/test_fuzz.py makes")
    parser.addoption("--fuzz", action="store_true", help="make random calls until one fails")


@pytest.fixture(scope="session")
def command(request):
    """The command's absolute path."""
    return str(pathlib.Path(request.config.getoption("--command")).resolve(strict=True))


@pytest.fixture(scope="session")
def every_number(request):
    return request.config.getoption("--every-number")


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY
