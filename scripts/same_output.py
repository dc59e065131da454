#!/usr/bin/env python3
"""Whether two builds show the same: every file that the command and the Python package write of some models, byte by byte.

    scripts/same_output.py write FOLDER build/release/attend MODEL...   # once with each build, and its package on PYTHONPATH
    scripts/same_output.py compare OLD NEW

MODEL: names or folders; minilm, smollm2 and an encoder-decoder (scripts/native_models.sh writes small ones) are of each kind.
"""

import filecmp
import pathlib
import re
import subprocess
import sys

TEXT, OTHER = "the cat sat on the mat because it was tired", "the dog sat on the mat because it was tired"
FORMS = ["svg", "png", "csv", "json", "html", "attend"]
PICTURES = ["svg", "png", "csv", "json"]
SHOWN = {"heads": ([], FORMS), "norm": (["--by", "norm"], FORMS), "layer": (["--layer", "0"], ["svg", "csv"]),
         "head": (["--head", "{head}"], ["svg", "json"]), "query": (["--head", "{head}", "--query", "{query}"], ["json"]),
         "strip": (["--head", "{head}", "--strip", "received"], ["svg"]),
         "label": (["--sort", "entropy"], ["csv", "json"])}
ASKED = {"ablate": ["--ablate"], "without": ["--without", "0.1,1.0"]}
ASKED_OF_DECODERS = {"why": ["--why", "{token}"], "against": ["--why", "{token}", "--against", "{other}"], "lens": ["--lens"],
                     "patch": ["--patch", OTHER, "--why", "{token}", "--against", "{other}"], "generate": ["--generate", "12"]}


def run(command, *arguments):
    done = subprocess.run([command, *map(str, arguments)], capture_output=True)
    # A line that says where a file went names the folder.
    return done.stdout + b"\n-- " + re.sub(rb"(wrote |attend: )\S+/", rb"\1", done.stderr) + b"\n-- %d\n" % done.returncode


def write_commands(folder, command, model, decoder, tokens):
    cases = {**{name: ([option.format(**tokens) for option in options], forms) for name, (options, forms) in SHOWN.items()},
             **{name: (options, ["json"] if name == "without" else PICTURES) for name, options in ASKED.items()}}
    if decoder:
        cases |= {name: ([option.format(**tokens) for option in options], ["json"] if name == "generate" else PICTURES)
                  for name, options in ASKED_OF_DECODERS.items()}
    else:
        cases["near"] = (["--near", OTHER, "--near", "a fish swims"], ["json"])
    for name, (options, forms) in cases.items():
        (folder / f"{name}.txt").write_bytes(run(command, "model", model, TEXT, *options, "--width", "100"))
        outputs = [x for form in forms for x in ("-o", folder / f"{name}.{form}")]
        (folder / f"{name}.log").write_bytes(run(command, "model", model, TEXT, *options, *outputs))
    (folder / "lines").write_text("\n".join([TEXT, OTHER, *TEXT.split()]))
    (folder / "embed.log").write_bytes(run(command, "embed", model, folder / "lines", "-o", folder / "embed.npy"))
    if (folder / "heads.attend").exists():
        for form in ("svg", "csv", "json", "html"):
            (folder / f"shown.{form}.log").write_bytes(run(command, "show", folder / "heads.attend", "-o", folder / f"shown.{form}"))


def write_python(folder, name, tokens):
    import attend

    model = attend.Model.load(name)
    words = {}
    if model.info.encoder_decoder:
        words["decoder_ids"] = [model.info.start, 3, 2]

    def put(stem, found):
        (folder / f"{stem}.python.csv").write_text(found.to_csv())
        (folder / f"{stem}.python.svg").write_text(found.picture().to_svg())
        (folder / f"{stem}.python.pandas").write_text(found.to_pandas().to_csv())

    put("ablate", model.ablate(TEXT, **words))
    if model.info.decoder:
        put("why", model.attribute(TEXT, token=tokens["token"], **words))
        put("lens", model.lens(TEXT, **words))
        put("patch", model.patch(TEXT, OTHER, token=tokens["token"], against=tokens["other"], **words))
        (folder / "generate.python.txt").write_text(model.generate(TEXT, max_new_tokens=12))
    recording = model.record(TEXT, keep="qk", **words)
    (folder / "record.python.json").write_text(recording.to_json())
    (folder / "record.python.svg").write_text(recording.picture(layers=recording.layers[-1:]).to_svg())
    (folder / "record.python.txt").write_text(str(recording.heads()))
    if not model.info.encoder_decoder:
        model.show(TEXT).save(str(folder / "show.python.html"))


def write(folder, command, models):
    for model in models:
        own = pathlib.Path(folder, pathlib.Path(model).name)
        own.mkdir(parents=True, exist_ok=True)
        small = pathlib.Path(model).exists()
        tokens = {"token": "t", "other": "a"} if small else {"token": " Paris", "other": " London"}
        both = "encoder_decoder" in model or "t5" in model
        tokens |= {"head": "decoder.0.cross.1", "query": 0} if both else {"head": "0.1", "query": 2}
        write_commands(own, command, model, "minilm" not in model, tokens)
        try:
            write_python(own, model, tokens)
        except Exception as error:  # what can't be asked of a model is a result, too
            (own / "python.error").write_text(f"{type(error).__name__}: {error}")


def compare(old, new):
    names = {str(path.relative_to(folder)) for folder in (old, new) for path in folder.rglob("*") if path.is_file()}
    differ = [name for name in sorted(names) if not all((folder / name).exists() for folder in (old, new)) or
              not filecmp.cmp(old / name, new / name, shallow=False)]
    print(f"{len(names)} files, {len(differ)} differ", *differ, sep="\n  ")
    return bool(differ)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", folder, command, *models] if models:
            write(pathlib.Path(folder), command, models)
        case ["compare", old, new]:
            sys.exit(compare(pathlib.Path(old), pathlib.Path(new)))
        case _:
            sys.exit(__doc__)
