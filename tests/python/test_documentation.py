"""What a user reads: every public name has a docstring, its examples run, and the stub says what there is."""

import ast
import importlib.metadata
import inspect
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import numpy
import pytest
import tiny
from documentation import check_module, check_name, public

import attend

MODULES = ("attend", "attend.onnx", "attend.widget")
PUBLIC = public(MODULES)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_explained_by_an_example(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.write("tiny")  # which the example of a model opens
    tiny.write_autoencoder("autoencoder")
    tiny.write_chat("tiny-chat")
    check_name(name, PUBLIC[name])


@pytest.mark.parametrize("module", MODULES)
def test_every_module_is_explained(module):
    check_module(module)


@pytest.mark.parametrize("kind", [
    attend.AttentionGradients, attend.AttentionPlan, attend.AttentionSteps, attend.AttentionSummary, attend.Chat, attend.HeadScores,
    attend.KvCache, attend.Generator, attend.Model, attend.ModelCache, attend.ModelInfo, attend.Picture,
    attend.SparseAutoencoder, attend.Trace,
    attend.TokenVectorFile, attend.VectorFile, attend.WithoutSink,
])
def test_every_member_is_explained(kind):
    plain = {"work_items", "title", "batch", "heads", "d_k", "d_v", "dtype", "ids", "tokens_2", "ids_2"}
    silent = {name for name, member in vars(kind).items() if not name.startswith("_") and not inspect.getdoc(member)}
    assert silent <= plain


STUB = ast.parse((pathlib.Path(attend.__file__).parent / "_core.pyi").read_text())


def stub_functions():
    """(qualified name, definition) of each function and method of the stub."""
    for node in STUB.body:
        members = [node] if isinstance(node, ast.FunctionDef) else node.body if isinstance(node, ast.ClassDef) else []
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        yield from ((prefix + member.name, member) for member in members if isinstance(member, ast.FunctionDef))


def test_the_stub_has_every_name():
    in_stub = {name for name, _ in stub_functions()} | {node.name for node in STUB.body if isinstance(node, ast.ClassDef)}
    in_module = {name for name in vars(attend._core) if not name.startswith("_")}
    for kind in list(in_module):
        if isinstance(getattr(attend._core, kind), type):
            members = (name for name in vars(getattr(attend._core, kind)) if not name.startswith("_"))
            in_module |= {f"{kind}.{name}" for name in members}
    assert in_module <= in_stub
    assert in_module - {name for name in in_module if "." in name} <= set(attend.__all__)


ZEROS = numpy.zeros((1, 2, 3, 4), numpy.float32)
PACKED = numpy.zeros((3, 2, 4), numpy.float32)
LSE = ZEROS[..., 0]
ARGUMENTS = {"attention": [ZEROS] * 3, "attention_backward": [ZEROS] * 5 + [LSE],
             "attention_varlen_backward": [PACKED] * 5 + [LSE[0], [0, 3], [0, 3]],
             "attention_varlen": [PACKED] * 3 + [[0, 3]] * 2, "attention_steps": [ZEROS] * 3,
             "plan": [ZEROS] * 3, "plan_backward": [ZEROS] * 3, "scaled_dot_product_attention": [ZEROS] * 3, "explain": [],
             "attention_summary": [ZEROS] * 2, "attention_weights": [ZEROS] * 2, "head_scores": [ZEROS] * 2,
             "attention_summary_varlen": [PACKED] * 2 + [LSE[0], [0, 3], [0, 3]], "plan_summary": [ZEROS] * 2,
             "KvCache.attention": [attend.KvCache(1, 2, 4, 4), ZEROS],
             "KvCache.attention_weights": [attend.KvCache(1, 2, 4, 4), ZEROS], "picture": [ZEROS], "head_grid": [ZEROS],
             "token_strip": [["a"], [1.0]], "token_links": [[[0]], [[1.0]]]}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_the_stub_says_of_keywords_is_true(name):
    definition = next(node for full_name, node in stub_functions() if full_name == name)
    function = attend._core
    for part in name.split("."):
        function = getattr(function, part)
    arguments = definition.args
    after = len(arguments.args) - len(arguments.defaults)
    defaults = dict(zip((a.arg for a in arguments.args[after:]), arguments.defaults))
    defaults |= {a.arg: value for a, value in zip(arguments.kwonlyargs, arguments.kw_defaults) if value}
    assert defaults
    for keyword, value in defaults.items():
        function(*ARGUMENTS[name], **{keyword: ast.literal_eval(value)})
    with pytest.raises(TypeError):
        function(*ARGUMENTS[name], no_such_keyword=None)


TYPED = """
from typing import Any, assert_type
import numpy
import attend

class Tensor: ...  # whatever kind of array goes in comes out

a = numpy.zeros((1, 2, 3, 4), numpy.float32)
t = Tensor()
assert_type(attend.attention(t, t, t, causal=True, window=(3, None), offset="bottom_right"), Tensor)
assert_type(attend.attention(t, t, t, return_lse=True), tuple[Tensor, Tensor])
assert_type(attend.attention_backward(t, t, t, t, t, t, dropout=(0.1, 5), dsinks=True), attend.AttentionGradients)
assert_type(attend.scaled_dot_product_attention(t, t, t, is_causal=True), Tensor)
assert_type(attend.KvCache(1, 2, 4, 4).attention(t), Tensor)
assert_type(attend.attention(t, [attend.KvCache(1, 2, 4, 4)], return_lse=True), tuple[Tensor, Tensor])
assert_type(attend.plan(a, a, a).scratch_bytes, int)
assert_type(attend.explain("the cat sat").to_svg(), str)
assert_type(attend.picture(a[0], rows=["a", "b", "c"], scale="log").to_png(), bytes)
assert_type(attend.head_grid([a, a]), attend.Picture)
model = attend.Model.load("folder")
assert_type(model.logits(t), Tensor)
assert_type(model.forward("the cat", edits=[attend.Edit(0), attend.Knockout([0])]), numpy.ndarray)
assert_type(model.forward("the cat", keep=["mlp"])[1], dict[Any, numpy.ndarray])
assert_type(model.generate("the cat", keep=["mlp"])[0], str)
assert_type(model.forward([1, 2], starts=a), numpy.ndarray)
assert_type(model.embed("the cat"), numpy.ndarray)
assert_type(model.embed(["the", "cat"], "query", True), numpy.ndarray)
assert_type(model.embed((each for each in ["the", "cat"]), progress=print), numpy.ndarray)
assert_type(model.embed(["the", "cat"], return_cut=True), tuple[numpy.ndarray, int])
assert_type(model.embed([1, 2, 3], starts=[0, 1, 3]), numpy.ndarray)
assert_type(model.generate("the cat", max_new_tokens=3), str)
assert_type(model.generate(["the", "cat"]), list[str])
assert_type(model.generate([1, 2], temperature=0.5), numpy.ndarray)
assert_type(model.generate(a, seed=3), numpy.ndarray)
assert_type(model.generate([[1, 2], [3]]), list[numpy.ndarray])
assert_type(model.attribute("the cat", token=" sat").top(3), list[attend.Part])
assert_type(model.gradient("the cat", token=" sat", at=["mlp", ("z", 1)]), attend.Gradient)
assert_type(model.gradient([1, 2], of={("z", 1): a})["embeddings"], numpy.ndarray)
assert_type(model.saliency("the cat", token=" sat"), attend.Saliency)
assert_type(model.passages("the cat", "line", answer=" sat"), attend.Passages)
assert_type(model.explain_score("the cat", "1.0", query=-1, key=0, against=None), attend.ScoreSplit)
assert_type(model.vary("the cat sat", "sat", words="cat=mat").looks_at("1.0"), list[tuple[str, float] | None])
assert_type(model.vary(["the cat"], "cat").baselines(), dict[str, int])
assert_type(model.composition().top("k", 3), list[tuple[str, str, float]])
assert_type(model.explain_value([1, 2], (1, 0), 1, token=3).top(2), list[tuple[str, float]])
assert_type(model.trace("the cat", " sat").heads[0].key_parts, list[attend.TracedPart])
edges = model.edges("the cat", "the mat", " sat", " on", method="eap-ig")
assert_type(edges.top(3), list[tuple[str, str, float]])
assert_type(model.circuit(edges, faithfulness=0.8), attend.Circuit)
assert_type(model.path_patch([1, 2], [1, 3], 4, 5, ["1.0"], ["output"]).recovered, float)
assert_type(model.jacobian_lens(["the cat", "the mat"], skip=0).jacobians, numpy.ndarray)
assert_type(model.lens([1, 2], jacobian=attend.JacobianLens.load("x")), attend.Lens)
assert_type(model.gradient_bytes(100), tuple[int, int])
autoencoder = attend.SparseAutoencoder.load("folder", reads=("mlp", 1))
assert_type(model.features("the cat", autoencoder), attend.Features)
assert_type(model.features([1, 2], autoencoder).top(), list[tuple[int, float]])
assert_type(autoencoder.encode(t), Tensor)
assert_type(autoencoder.edit(model.features([1], autoencoder), 3, scale=2.0), attend.Edit)
assert_type(attend.VectorFile("v.npy").nearest(a, k=3), list[attend.Near])
row, similarity = attend.VectorFile("v.npy").nearest(a)[0]
assert_type(attend.TokenVectorFile("v.npy").nearest(a, k=3), list[attend.NearText])
asked = attend.Model.load("folder").embed_tokens("a cat", role="query")
assert_type(asked.match(attend.Model.load("folder").embed_tokens(["a"])[0]), attend.TokenMatch)
assert_type(attend.Model.load("folder").embed_sparse(["a cat"])[0].top(2), list[tuple[str, float]])
assert_type(attend.max_sim(a, a)[0], float)
assert_type(attend.Model.load("folder").tag("a cat"), attend.Tagged)
assert_type(attend.Model.load("folder").tag(["a cat"]), list[attend.Tagged])
assert_type(similarity, float)
assert_type(attend.Model.load("folder").record([1], keep="qk"), attend.Recording)
x: numpy.ndarray = attend.Generator(1).rand((2, 3))
"""
WRONG = {
    'attend.attention(t, t, t, offset="middle")': "arg-type|call-overload",
    "attend.attention(t, t)": "call-overload",
    "attend.attention_backward(t, t, t, t)": "call-arg",
    "attend.attention(t, t, t, cusal=True)": "call-overload",
    'attend.explain(heads="two")': "arg-type",
    'attend.picture(a, scale="cubic")': "arg-type",
    "attend.set_num_threads(None)": "arg-type",
    'attend.Model.load("folder").embed("the cat", batch_size=3)': "call-overload",
    "attend.Model.load('folder').generate({1: 2})": "call-overload",
    'attend.Model.load("folder").forward(5)': "arg-type",
    "attend.Edit(0, at='middle')": "arg-type",
}
# PyTorch's own types take a minute to read: of these attend.torch names two.
TORCH = {"__init__.pyi": "from typing import Any\nclass Tensor: ...\ndef __getattr__(name: str) -> Any: ...\n",
         "distributed.pyi": "from typing import Any\nclass ProcessGroup: ...\ndef __getattr__(name: str) -> Any: ...\n"}
OF_TORCH = textwrap.dedent("""
    from typing import assert_type
    import torch
    import attend.torch

    t = torch.Tensor()
    assert_type(attend.torch.attention(t, t, t, causal=True, dropout=(0.1, 5), layout="bthd"), torch.Tensor)
    assert_type(attend.torch.attention(t, t, t, return_lse=True, mask=t), tuple[torch.Tensor, torch.Tensor])
    assert_type(attend.torch.attention(t, t, t, return_lse_low=True), tuple[torch.Tensor, torch.Tensor, torch.Tensor])
    assert_type(attend.torch.scaled_dot_product_attention(t, t, t, is_causal=True), torch.Tensor)
    assert_type(attend.torch.ring_attention(t, t, t, sharding="zigzag", causal=True), torch.Tensor)
    assert_type(attend.torch.ring_attention(t, t, t, return_lse=True), tuple[torch.Tensor, torch.Tensor])
    assert_type(attend.torch.ring_shard(t, 2), torch.Tensor)
""")
WRONG_OF_TORCH = ["attend.torch.attention(t, t, t, cusal=True)", "attend.torch.attention(t, t, t, layout='bhdt')",
                  "attend.torch.ring_attention(t, t, t, sharding=1)"]
MYPY = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]


def test_types_are_checked_where_the_package_is_used(tmp_path):
    (tmp_path / "right.py").write_text(TYPED)
    lines = TYPED.splitlines()[1:9]  # up to the two arrays
    (tmp_path / "wrong.py").write_text("\n".join([*lines, *WRONG]))
    found = subprocess.run([*MYPY, "right.py"], capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stdout
    found = subprocess.run([*MYPY, "wrong.py"], capture_output=True, text=True, cwd=tmp_path).stdout
    for number, (line, codes) in enumerate(WRONG.items(), len(lines) + 1):
        assert any(f"wrong.py:{number}: error" in found and f"[{code}]" in found for code in codes.split("|")), (line, found)


def test_so_are_those_of_attend_torch(tmp_path):
    (tmp_path / "types/torch").mkdir(parents=True)
    for name, text in TORCH.items():
        (tmp_path / "types/torch" / name).write_text(text)
    (tmp_path / "right.py").write_text(OF_TORCH)
    (tmp_path / "wrong.py").write_text("\n".join(["import torch", "import attend.torch", "t = torch.Tensor()", *WRONG_OF_TORCH]))
    run = [*MYPY, "--no-namespace-packages", "right.py", "wrong.py"]
    found = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"MYPYPATH": "types"}).stdout
    assert "right.py" not in found, found
    for number in range(4, 4 + len(WRONG_OF_TORCH)):
        assert f"wrong.py:{number}: error" in found, found


def needed(extras):
    """What `pip install '.[extras]'` brings, by the names of distributions."""
    names = {"attend", "numpy"}
    for requirement in importlib.metadata.requires("attend-cpu"):
        name, extra = re.match(r"[\w-]+", requirement)[0], re.search(r"extra == .(\w+)", requirement)
        if extra and extra[1] in extras:
            inner = re.match(r"attend-cpu\[(\w+)\]", requirement)
            names |= needed({inner[1]}) if inner else {name}
    return names


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_what_the_pages_install_is_what_their_python_imports(repository, page):
    text = (repository / page).read_text()
    extras = set(re.search(r"pip install '\.\[([\w,]+)\]'", text)[1].split(","))
    imported = set(re.findall(r"^(?:import|from) (\w+)", "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), re.MULTILINE))
    assert "torch" in imported and imported <= needed(extras)


def test_the_package_says_that_it_is_typed():
    assert (pathlib.Path(attend.__file__).parent / "py.typed").exists()
