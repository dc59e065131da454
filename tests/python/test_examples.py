"""The example runs, and prints what it promises."""

from documentation import check_example


def test_example(repository):
    check_example(repository, "numpy_attention", r"token by token, the largest difference: \S+e-0[78]$")
