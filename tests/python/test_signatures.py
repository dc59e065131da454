"""Every public function and method tells inspect what it takes, and says in words what does not fit in a call."""

import ast
import inspect
import pathlib

import numpy
import pytest
import tiny

import attend
from attend import _calls

STUB = ast.parse((pathlib.Path(attend.__file__).parent / "_core.pyi").read_text())


def functions():
    """(name, what is public under it): the functions, and the methods of the classes."""
    for name in attend.__all__:
        thing = getattr(attend, name)
        if not isinstance(thing, type):
            yield from () if inspect.ismodule(thing) else ((name, thing),)
            continue
        for member in vars(thing):
            if not member.startswith("_") and callable(getattr(thing, member)):
                yield f"{name}.{member}", getattr(thing, member)


FUNCTIONS = dict(functions())
NATIVE = {name: function for name, function in FUNCTIONS.items() if type(function).__name__ == "_Function"}
CONSTRUCTED = [attend.Edit, attend.Generator, attend.Knockout, attend.KvCache, attend.Tokenizer, attend.VectorFile]


def in_stub(name):
    """What stands there: (arguments, defaults) of the last of a function's overloads."""
    *of, name = name.split(".")
    body = next(node for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == of[0]).body if of else STUB.body
    arguments = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name][-1].args
    names = [each.arg for each in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    values = arguments.defaults + [value for value in arguments.kw_defaults if value]
    return names, [ast.literal_eval(value) for value in values]


def told(signature):
    parameters = signature.parameters.values()
    return [each.name for each in parameters], [each.default for each in parameters if each.default is not each.empty]


def test_all_are_looked_at():
    assert len(FUNCTIONS) > 90 and len(NATIVE) > 70 and "Model.embed" in NATIVE and "attention" in NATIVE


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inspect_knows_what_it_takes(name):
    signature = inspect.signature(FUNCTIONS[name])
    if name in NATIVE:
        assert told(signature) == in_stub(name)


@pytest.mark.parametrize("kind", CONSTRUCTED)
def test_and_what_a_constructor_does(kind):
    (_, *names), values = in_stub(f"{kind.__name__}.__init__")
    assert told(inspect.signature(kind)) == (names, values)


def test_a_method_of_an_object_has_no_self(tmp_path):
    model = attend.Model.load(tiny.write(tmp_path))
    assert list(inspect.signature(model.logits).parameters) == ["hidden"]
    assert list(inspect.signature(attend.Model.load).parameters) == ["path", "dtype", "activations"]
    assert model.logits.__self__ is model and model.logits.__name__ == "logits" and "logits" in model.logits.__doc__


@pytest.mark.parametrize("name", NATIVE)
def test_an_unknown_keyword_is_named(name):
    with pytest.raises(TypeError) as error:
        NATIVE[name](no_such_keyword=1)
    assert str(error.value).startswith(f"{name}() got an unexpected keyword argument 'no_such_keyword': ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", CONSTRUCTED)
def test_so_a_constructors(kind):
    with pytest.raises(TypeError, match=rf"^{kind.__name__}\(\) got an unexpected keyword argument 'no_such_keyword': "):
        kind(no_such_keyword=1)


def test_what_is_said_to_be_meant_is_there():
    parameters = {name for function in NATIVE.values() for name in inspect.signature(function).parameters}
    assert {name for names in _calls.NAMES.values() for name in names.split()} <= parameters
    assert _calls.REMARKS.keys() <= parameters


class Nothing:
    """Which no argument is."""

    __iter__ = __len__ = None


@pytest.mark.parametrize("name", NATIVE)
def test_nothing_is_said_in_c_plus_plus(name):
    function = NATIVE[name]
    required = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    for arguments in [(Nothing(),) * len(required), (None,) * len(required), (1,) * len(required), ("a",) * len(required)]:
        if not arguments or name in ("set_num_threads", "Attribution.to_pandas"):
            continue
        with pytest.raises((TypeError, ValueError, OSError)) as error:
            function(*arguments)
        assert "incompatible function arguments" not in str(error.value) and "attend::" not in str(error.value)
    with pytest.raises(TypeError) as error:
        function(*(Nothing() for _ in range(40)))
    assert str(error.value) == f"{name}(): too many positional arguments"


X = numpy.zeros((1, 2, 3, 4), numpy.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return attend.Model.load(tiny.write(tmp_path_factory.mktemp("tiny")))


KEYWORDS = {
    "embed(['the cat'], batch_size=32)": "what is given is computed in batches of a size that fits the machine",
    "embed(['the cat'], normalize_embeddings=True)": "here it is normalize",
    "embed(['the cat'], prompt_name='query')": "here it is prompt, which takes a name too",
    "embed(['the cat'], show_progress_bar=True)": "here it is progress",
    "embed(['the cat'], convert_to_tensor=True)": "results are NumPy arrays, which torch.from_numpy() takes",
    "embed(['the cat'], normalise=True)": "did you mean normalize?",
    "generate('the', stop=['cat'])": "here it is stop_strings",
    "generate('the', stop_token_ids=[1])": "here it is end, a list of ids",
    "generate('the', max_tokens=3)": "here it is max_new_tokens",
    "generate('the', max_length=3)": "here it is max_new_tokens",
    "generate('the', do_sample=True)": "temperature above 0 draws, and 0 takes the likeliest token",
    "generate('the', presence_penalty=1.1)": "the penalty that there is is repetition_penalty",
    "generate(input_ids=[1])": "here it is ids",
    "forward([1], attention_mask=[1])": "sequences of different lengths stand one after another",
    "forward([1], past_key_values=None)": "here it is caches",
    "load('x', torch_dtype='float32')": "here it is dtype",
    "load('x', device_map='auto')": "attend computes on the CPU",
    "tokenizer.encode('a', add_special_tokens=False)": "here it is special",
    "tokenizer.decode([1], skip_special_tokens=False)": "here it is skip_special",
    "tokenizer.encode('a', truncation=True)": "texts are not cut here",
}


@pytest.mark.parametrize("call", KEYWORDS)
def test_what_other_libraries_say_is_told_by_its_name_here(model, call):
    with pytest.raises(TypeError) as error:
        eval(f"model.{call}", {"model": model})
    keyword = str(error.value).partition("'")[2].partition("'")[0]
    assert f"{keyword}=" in call
    assert KEYWORDS[call] in str(error.value).partition(f"argument '{keyword}': ")[2]


def test_so_does_attention():
    for keyword, hint in {"is_causal": "here it is causal", "attn_mask": "here it is mask", "dropout_p": "dropout is (p, seed)",
                          "softmax_scale": "here it is scale", "cusal": "did you mean causal?"}.items():
        with pytest.raises(TypeError) as error:
            attend.attention(X, X, X, **{keyword: None})
        assert str(error.value) == f"attention() got an unexpected keyword argument '{keyword}': {hint}"


WRONG = {
    "model.generate('the', max_new_tokens='ten')": "Model.generate: max_new_tokens: expected a whole number, got 'ten'",
    "model.generate('the', max_new_tokens=1.5)": "Model.generate: max_new_tokens: expected a whole number, got 1.5",
    "model.generate('the', seed=-1)": "Model.generate: seed: expected a whole number from 0 to 2**63 - 1, got -1",
    "model.generate('the', temperature='hot')": "Model.generate: temperature: expected a number, got 'hot'",
    "model.generate({'a': 1})": "Model.generate: ids: expected whole numbers, a list or an array [N], got {'a': 1}",
    "model.generate()": "Model.generate(): missing a required argument: 'ids'",
    "model.forward(None)": "Model.forward: ids: expected a text, whole numbers [N] or a list of texts or whole numbers [N], got None",
    "model.forward([[1, 2], {1: 2}])": "Model.forward: ids[1]: expected a text, or whole numbers [N], got {1: 2}",
    "model.forward({1: 2})": "Model.forward: ids: expected a text, or whole numbers [N]; of several sequences all ids, and starts "
                             "says where each begins, got {1: 2}",
    "model.forward(b'the')": "Model.forward: ids: expected a text, or whole numbers [N]; of several sequences all ids, and starts "
                             "says where each begins, got b'the'",
    "model.forward([1], starts={0, 1})": "Model.forward: starts: expected whole numbers, a list or an array [N], got {0, 1}",
    "model.embed({'a': 1})": "Model.embed: sentences: expected a list of texts (str), or a text's ids (whole numbers), got {'a': 1}",
    "model.lens([1], top=None)": "Model.lens: top: expected a whole number, got None",
    "model.patch([1], [2], 3, 4, what=5)": "Model.patch: what: expected 'heads', 'residual', 'q', 'k' or 'v', got 5",
    "model.show('the', chat='yes')": "Model.show: chat: expected True or False, got 'yes'",
    "model.tokenizer.encode(5)": "Tokenizer.encode: text: expected a text, got 5",
    "model.tokenizer.chat('Hi')": "Tokenizer.chat: messages: expected a list of dicts with a role and a content, both text, got 'Hi'",
    "model.attribute([1]).top('all')": "Attribution.top: n: expected a whole number, got 'all'",
    "model.record([1]).picture(title=5)": "Recording.picture: title: expected a text or None, got 5",
    "model.record([1]).heads(by=5)": "Recording.heads: by: expected a text, got 5",
    "model.lens([1]).picture(most='all')": "Lens.picture: most: expected a whole number, got 'all'",
    "attend.Model.logits(5, X)": "Model.logits: self: expected a Model, got 5",
    "attend.Knockout('a')": "Knockout: keys: expected whole numbers, a list or an array [N], got 'a'",
    "attend.Edit([1])": "Edit: layer: expected a whole number or a text, got [1]",
    "attend.Edit(0, at=5)": "Edit: at: expected 'embeddings', 'residual', 'q', 'k', 'v', 'rotated_q', 'rotated_k', 'z', 'attention', "
                            "'residual_mid', 'mlp_input', 'mlp_hidden', 'mlp', 'cross_residual', 'cross_q', 'cross_k', 'cross_v', "
                            "'cross_z', "
                            "'cross_attention', 'encoder_embeddings', 'encoder_residual', 'encoder_q', 'encoder_k', 'encoder_v', "
                            "'encoder_z', 'encoder_attention', 'encoder_residual_mid', 'encoder_mlp_input', 'encoder_mlp_hidden' or "
                            "'encoder_mlp', got 5",
    "attend.KvCache(1, 2, 3)": "KvCache(): missing a required argument: 'd_v'",
    "attend.KvCache(1, 2, 3, 4.5)": "KvCache: d_v: expected a whole number, got 4.5",
    "attend.Generator('seed')": "Generator: seed: expected a whole number, got 'seed'",
    "attend.Generator(-1)": "Generator: seed: expected a whole number from 0 to 2**63 - 1, got -1",
    "attend.Tokenizer(5)": "Tokenizer: json: expected a text, got 5",
    "attend.set_num_threads('all')": "set_num_threads: threads: expected a whole number, got 'all'",
    "attend.picture(X[0, 0], low='dark')": "picture: low: expected a number, got 'dark'",
    "attend.attention(X, X, X, layout=5)": "attention: layout: expected 'bhtd' or 'bthd', got 5",
    "attend.attention(X, X, X, causal='yes')": "attention: causal: expected True or False, got 'yes'",
}


@pytest.mark.parametrize("call", WRONG)
def test_what_does_not_fit_is_named_with_what_was_expected(model, call):
    with pytest.raises(TypeError) as error:
        eval(call, {"model": model, "attend": attend, "X": X})
    assert str(error.value) == WRONG[call]


def test_what_came_is_cut_where_it_is_long(model):
    with pytest.raises(TypeError) as error:
        model.forward([*range(1000), "a"])
    assert len(str(error.value)) < 300 and str(error.value).endswith(" ...")


def test_whole_numbers_and_texts_of_other_kinds_are_taken(model, tmp_path):
    assert len(model.generate([1], max_new_tokens=numpy.int64(2))) == 2
    assert len(attend.KvCache(numpy.int32(1), 2, numpy.int8(4), 4)) == 0
    assert attend.Generator(numpy.uint64(3)).rand((2,)).shape == (2,)
    assert model.forward(numpy.array([1, 2])).shape == (2, 16)


def test_another_error_keeps_its_words():
    with pytest.raises(ValueError, match="^attention: k has head size 4, q has 3 "):
        attend.attention(X[..., :3], X, X)

    def fail(_):
        raise TypeError("mine")

    with pytest.raises(TypeError, match="^mine$"):
        attend.VectorFile(type("Path", (), {"__fspath__": fail})())


def test_a_models_file_is_told_from_its_folder(tmp_path):
    folder = tiny.write(tmp_path / "x")
    with pytest.raises(OSError, match=r"x/model.safetensors' is a file: expected a .gguf file, or the folder that a model's files are "
                                      r"in, as '.*/x'"):
        attend.Model.load(f"{folder}/model.safetensors")
    with pytest.raises(OSError, match="^Model.load: no file or folder ''"):
        attend.Model.load("")


def test_a_refused_type_is_told_without_a_list(tmp_path):
    folder = tmp_path / "x"
    tiny.write(folder)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace('"llama"', '"bloom"'))
    with pytest.raises(OSError, match="'bloom' is not known here") as error:
        attend.Model.load(folder)
    assert str(error.value).endswith("docs/models.md lists the types that are known") and "qwen2" not in str(error.value)


def test_a_recording_of_a_text_has_its_tokens(model):
    assert model.record("the cat sat").tokens == [["the", "cat", "sat"]] and model.record([1, 2]).tokens == []
    text = model.tokenizer.decode(model.generate([1, 2], max_new_tokens=3)).split()
    written = model.record("the cat", max_new_tokens=3)
    assert written.tokens == [["the", "cat", *text][:-1]] and len(written.tokens[0]) == written.ids.shape[1]
