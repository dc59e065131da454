"""examples/translate: the command survives being killed, and prepare.py makes pairs of catalogues."""

import importlib.util
import pathlib
import random
import re
import signal
import struct
import subprocess
import xml.etree.ElementTree

import pytest
from faults import with_fault

WORDS = {"Open": "Apri", "Close": "Chiudi", "Save": "Salva", "Print": "Stampa"}
THINGS = {"the file": "il file", "the window": "la finestra", "the page": "la pagina", "the folder": "la cartella"}
PAIRS = [(f"{verb} {thing}", f"{verbo} {cosa}") for verb, verbo in WORDS.items() for thing, cosa in THINGS.items()]
SMALL = ["--embedding", "32", "--hidden", "64", "--layers", "1", "--batch", "4", "--vocabulary", "320",
         "--warmup", "20", "--validate-every", "50", "--learning-rate", "5e-3", "--dropout", "0.1", "--steps", "400"]


@pytest.fixture(scope="session")
def translate(command):
    """The example's program, which is built beside the command."""
    return str(pathlib.Path(command).parent / "translate")


@pytest.fixture(scope="session")
def folder(tmp_path_factory, translate):
    """With pairs.tsv, and model.safetensors, which was trained without a break."""
    folder = tmp_path_factory.mktemp("translate")
    splits = ["valid" if i == 5 else "test" if i == 10 else "train" for i in range(len(PAIRS))]
    lines = [f"{split}\t{english}\t{italian}\n" for split, (english, italian) in zip(splits, PAIRS)]
    (folder / "pairs.tsv").write_text("".join(lines))
    done = run(translate, folder, "train", "--data", "pairs.tsv", "--checkpoint", "model.safetensors", *SMALL)
    assert done.returncode == 0, done.stderr
    return folder


def run(translate, folder, *arguments, **options):
    return subprocess.run([translate, *arguments], cwd=folder, capture_output=True, text=True, **options)


def test_training_says_how_it_is_getting_on(translate, folder):
    done = run(translate, folder, "train", "--data", "pairs.tsv", "--checkpoint", "lines.safetensors", *SMALL,
               "--steps", "100")
    assert done.stdout == ""
    assert len(re.findall(r"^\d+/100 loss \d\.\d+ valid \d+\.\d+ \d+ tokens/s \d+:\d\d left$", done.stderr, re.M)) == 2


def test_killed_at_any_write_and_resumed_it_ends_with_the_same_bytes(translate, folder):
    chance = random.Random(0)
    arguments = ["train", "--data", "pairs.tsv", "--checkpoint", "killed.safetensors", *SMALL, "--save-every", "1"]
    for _ in range(20):  # of 400 steps, each of which writes a checkpoint
        fault = with_fault(translate, chance.choice(["write", "fsync", "rename"]), chance.randrange(20), signal.SIGKILL)
        assert run(translate, folder, *arguments, env=fault).returncode == -signal.SIGKILL
    assert run(translate, folder, *arguments).returncode == 0
    assert (folder / "killed.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_what_it_could_not_write_is_an_error(translate, folder):
    arguments = ["text", PAIRS[0][0], "--checkpoint", "model.safetensors"]
    with open("/dev/full", "w") as full:
        done = subprocess.run([translate, *arguments], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (1, "translate: standard output: No space left on device\n")


def test_it_translates_scores_and_draws(translate, folder, command):
    english, italian = PAIRS[0]
    done = run(translate, folder, "text", english, "--checkpoint", "model.safetensors", "--attention", "attention.svg")
    assert (done.returncode, done.stdout) == (0, italian + "\n")
    picture = (folder / "attention.svg").read_text()
    assert xml.etree.ElementTree.fromstring(picture).tag.endswith("svg")
    assert all(word in picture for word in ("English", "Italian", "(cross-attention, layer 0)"))
    assert re.findall(r">head (\d)<", picture) == ["0", "1", "2", "3"]
    run(translate, folder, "text", english, "--checkpoint", "model.safetensors", "--record", "x.attend")
    told = subprocess.run([command, "show", "x.attend", "--layer", "decoder.0.cross"], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.count("decoder.0.cross") == 4 and "3 layers x 4 heads, q and k kept" in told.stdout
    same = run(translate, folder, "text", "--checkpoint", "model.safetensors", input=f"{english}\n{PAIRS[1][0]}\n")
    assert same.stdout == f"{italian}\n{PAIRS[1][1]}\n"

    done = run(translate, folder, "score", "--data", "pairs.tsv", "--checkpoint", "model.safetensors",
               "--split", "train", "-o", "scored.tsv")
    assert "exact match  100.0 %" in done.stdout
    assert "chrF         100.0" in done.stdout
    learned = [pair for i, pair in enumerate(PAIRS) if i not in (5, 10)]
    assert (folder / "scored.tsv").read_text() == "".join(f"{e}\t{i}\t{i}\n" for e, i in learned)

    assert run(translate, folder, "plot", "--checkpoint", "model.safetensors", "-o", "loss.svg").returncode == 0
    assert xml.etree.ElementTree.fromstring((folder / "loss.svg").read_text()).tag.endswith("svg")


@pytest.mark.parametrize(
    "status, message, arguments",
    [
        (2, "subcommand is required", []),
        (2, "--heads: model.safetensors has 4, got 8",
         ["train", "--data", "pairs.tsv", "--checkpoint", "model.safetensors", "--heads", "8"]),
        (2, "learned from another file", ["train", "--data", "other.tsv", "--checkpoint", "model.safetensors"]),
        (2, "even number that --heads divides",
         ["train", "--data", "pairs.tsv", "--checkpoint", "new.safetensors", "--embedding", "30"]),
        (1, "a batch has 128", ["train", "--data", "pairs.tsv", "--checkpoint", "new.safetensors"]),
        (3, "missing.tsv", ["train", "--data", "missing.tsv", "--checkpoint", "new.safetensors"]),
        (3, "pairs.tsv", ["text", "Open", "--checkpoint", "pairs.tsv"]),
        (2, "should end in .svg or .png",
         ["text", "Open", "--checkpoint", "model.safetensors", "--attention", "a.gif"]),
        (2, "should end in .attend",
         ["text", "Open", "--checkpoint", "model.safetensors", "--record", "a.safetensors"]),
        (2, "the decoder's last layer is 0, got 1",
         ["text", "Open", "--checkpoint", "model.safetensors", "--attention", "a.svg", "--layer", "1"]),
    ],
)
def test_mistakes(translate, folder, status, message, arguments):
    (folder / "other.tsv").write_text("train\tOpen\tApri\n")
    done = run(translate, folder, *arguments)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert not (folder / "new.safetensors").exists()


@pytest.mark.parametrize("name", ["train", "text", "score", "plot"])
def test_help_has_examples_whose_options_exist(translate, folder, name):
    done = run(translate, folder, name, "--help")
    assert done.returncode == 0
    options, examples = re.split(r"^Examples?:$", done.stdout, flags=re.M)
    assert f"translate {name} " in examples
    assert max(map(len, done.stdout.splitlines())) <= 80
    for used in re.findall(r"(?<!\S)-{1,2}[a-z][a-z-]*", examples):
        assert re.search(rf"^  .*{re.escape(used)}\b", options, re.M), used


@pytest.fixture(scope="session")
def prepare(repository):
    spec = importlib.util.spec_from_file_location("prepare", repository / "examples/translate/prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_catalogue(path, messages):
    """A .mo file as the GNU gettext manual describes it: two tables of lengths and offsets, then the texts."""
    messages = {"": "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n != 1;\n"} | messages
    pairs = sorted((key.encode(), text.encode()) for key, text in messages.items())
    tables, texts = [b"", b""], b""
    for column in (0, 1):
        for pair in pairs:
            offset = 28 + 16 * len(pairs) + len(texts)
            tables[column] += struct.pack("<II", len(pair[column]), offset)
            texts += pair[column] + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(header + tables[0] + tables[1] + texts)


def test_pairs_of_a_package(prepare, tmp_path):
    write_catalogue(tmp_path / "tree/usr/share/locale/it/LC_MESSAGES/a.mo", {
        "_Open file": "_Apri file", "menu\x04Save": "Salva", "%d file\x00%d files": "%d file solo\x00%d file molti",
        "OK": "OK", "two\nlines": "due\nrighe", "%s": "%s!", "A " * 13 + "word": "tante parole"})
    (tmp_path / "tree/DEBIAN").mkdir()
    control = "Package: tiny\nVersion: 1:2.0\nArchitecture: all\nMaintainer: a <a@b.c>\nDescription: x\n"
    (tmp_path / "tree/DEBIAN/control").write_text(control)
    package = tmp_path / "tiny_1%3a2.0_all.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", tmp_path / "tree", package]
    subprocess.run(build, check=True, capture_output=True)
    assert prepare.read_pairs([package]) == {"Open file": "Apri file", "Save": "Salva", "%d file": "%d file solo"}


def test_near_duplicates_are_found(prepare):
    held_out = ["Cannot open the file %s", "Save"]
    near = ["cannot open the file", "Cannot open file", "Cannot open the file: %d", "SAVE!"]
    far = ["Can not open the file", "Cannot close the file", "Save the file", "Open"]
    assert prepare.near_duplicates([*near, *far], held_out) == set(near)
    assert prepare.words("Save: %2$s, NOW") == ("save", "now")
