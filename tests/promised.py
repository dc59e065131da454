"""What a version promises to keep (docs/promises.md), as this build has it: names, and what its files say."""

import ast
import inspect
import json
import pathlib
import re
import subprocess

import numpy

import attend

GOLDEN = pathlib.Path(__file__).parent / "golden" / "promised"
JOINED = ("torch", "transformers", "onnx", "widget")  # modules that import what is not always installed: read, not imported


def parameters(thing):
    """The names that a caller may give; of overloads all of them."""
    signatures = [entry[0] for entry in getattr(thing, "__nb_signature__", ()) if isinstance(entry[0], str)]
    if signatures:
        return sorted({name for text in signatures for name in re.findall(r"[(,] ?(\w+):", text)})
    try:
        return sorted(inspect.signature(thing).parameters)
    except (TypeError, ValueError):
        return []


def python_names():
    found = {}
    for name in attend.__all__:
        thing = getattr(attend, name)
        found[f"attend.{name}"] = parameters(thing)
        if inspect.isclass(thing):
            for member in dir(thing):
                if not member.startswith("_"):
                    found[f"attend.{name}.{member}"] = parameters(getattr(thing, member))
    package = pathlib.Path(attend.__file__).parent
    for module in JOINED:
        tree = ast.parse((package / f"{module}.py").read_text())
        listed = next(ast.literal_eval(node.value) for node in tree.body
                      if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
        defined = {node.name: [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                   for node in tree.body if isinstance(node, ast.FunctionDef)}
        found |= {f"attend.{module}.{name}": sorted(defined.get(name, [])) for name in listed}
    return found


def command_names(command):
    """Each command's options and arguments, by its help."""
    def help_of(*words):
        return subprocess.run([command, *words, "--help"], capture_output=True, text=True, check=True).stdout

    commands = re.findall(r"^  (\w+) ", help_of().split("Commands:")[1].split("Options:")[0], re.M)
    return {name: sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of(name).split("Usage:")[1]))) for name in commands}


def keys(value, path=""):
    """Every key of a JSON value, as a path; of a list those of its entries."""
    if isinstance(value, dict):
        return sorted({f"{path}.{key}" for key in value} | {found for key, each in value.items() for found in keys(each, f"{path}.{key}")})
    return sorted({found for each in value for found in keys(each, f"{path}[]")}) if isinstance(value, list) else []


def json_keys(command, folder):
    """Of what --json prints, for a small model and for the documents' pipeline."""
    calls = {"explain": ["explain", "the cat sat", "--json"], "plan": ["plan", "1,2,8,4", "--json"],
             "model": ["model", folder, "the cat sat", "--json"], "why": ["model", folder, "the cat sat", "--why", "cat", "--json"],
             "generate": ["model", folder, "the cat sat", "--generate", "2", "--json"]}
    return {name: keys(json.loads(subprocess.run([command, *call], capture_output=True, text=True, check=True).stdout))
            for name, call in calls.items()}


def names(command, folder):
    return {"python": python_names(), "command": command_names(command), "json": json_keys(command, folder)}


def numbers_of(folder):
    """What the files in a folder of tests/golden/promised say, in numbers that any reader of them must give."""
    folder = pathlib.Path(folder)
    recording = attend.Recording.load(folder / "recording.attend")
    model = attend.Model.load(folder / "model.gguf")
    ids = model.tokenizer.encode("the cat sat").ids
    rounded = lambda x: numpy.asarray(x, numpy.float64).round(5).tolist()
    steering = attend.Steering.load(folder / "direction.gguf").directions
    lens = attend.JacobianLens.load(folder / "lens.safetensors")
    return {
        "recording": {"tokens": list(recording.tokens[0]), "weights": [rounded(recording[layer].weights(3)) for layer in recording.layers]},
        "model": {"ids": ids.tolist(), "hidden": rounded(model.forward(ids)), "vocabulary": model.info.vocabulary},
        "direction": {str(layer): rounded(row) for layer, row in steering.items()},
        "lens": {"prompts": lens.prompts, "jacobians": rounded(lens.jacobians)},
    }
