"""What a user reads, and how it is checked: of the package in tests/python, of what joins it to PyTorch in tests/pytorch."""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys

import attend


def public(modules):
    return {f"{module}.{name}": getattr(importlib.import_module(module), name)
            for module in modules for name in importlib.import_module(module).__all__}


def run_examples(text, name):
    examples = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    report = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(examples, out=report.append)
    assert not report, "".join(report)
    return len(examples.examples)


def check_name(name, thing):
    """It has a docstring, whose examples run."""
    text = inspect.getdoc(thing)
    assert text
    if name in ("attend.AttentionGradients", "attend.AttentionPlan", "attend.AttentionSteps", "attend.AttentionSummary",
                "attend.Encoding", "attend.HeadScores", "attend.ModelCache", "attend.ModelInfo", "attend.Page", "attend.Picture",
                "attend.RecordedLayer", "attend.Recording", "attend.Trace", "attend.WithoutSink", "attend.explain_presets",
                "attend.num_threads"):
        return  # explained by the function that gives or sets it
    try:
        assert run_examples(text, name) > 0 or inspect.ismodule(thing)
    finally:
        attend.set_num_threads(2**31 - 1)  # of which there is an example


def check_module(module):
    text = importlib.import_module(module).__doc__
    assert text
    run_examples(text, module)


def check_example(repository, name, line):
    """examples/NAME.py runs, and prints the line that it promises."""
    run = subprocess.run([sys.executable, repository / "examples" / f"{name}.py"], capture_output=True, text=True,
                         env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert run.returncode == 0, run.stderr
    assert re.search(line, run.stdout, re.MULTILINE), run.stdout
