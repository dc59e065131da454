"""attend.Model, in a process without PyTorch, as who uses it has it."""

import sys

import numpy as np

import attend
import protocol
import weights

NAME, VERSION = "attend.Model", attend.__version__
DTYPES = {"f32": "float32", "bf16": "bfloat16"}

set_threads = attend.set_num_threads


def ways(case, inputs):
    folder, dtype = weights.folder_of(case), DTYPES[case["dtype"]]
    batch, length = inputs["ids"].shape
    ids = inputs["ids"].reshape(-1)
    starts = np.arange(batch + 1) * length
    if case["phase"] == "open":
        call = lambda: attend.Model.load(folder, dtype).forward(ids)
    else:
        model = attend.Model.load(folder, dtype)
        call = {"encode": lambda: model.forward(ids, starts), "prefill": lambda: last_logits(model, ids, model.cache()),
                "decode": decoding(model, ids, case["new"])}[case["phase"]]
    yield "attend.Model", call, lambda out: out


def last_logits(model, ids, cache):
    return model.logits(model.forward(ids, caches=[cache])[-1:])


def decoding(model, ids, new):
    """As python.py's."""
    if not new:
        return None
    prompt = len(ids) - new
    cache = model.cache()
    model.forward(ids[:prompt], caches=[cache])

    def call():
        for at in range(prompt, len(ids)):
            logits = last_logits(model, ids[at:at + 1], cache)
        cache.truncate(prompt)
        return logits

    return call


if __name__ == "__main__":
    protocol.serve(sys.modules[__name__])
