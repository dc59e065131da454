"""A pretrained model as a file that another runtime reads. A process of its own writes it: who is measured has no PyTorch beside it.

    python exported.py FORM B T PATH    FORM: "openvino", or "onnx-20", the number being the opset
"""

import contextlib
import pathlib
import subprocess
import sys
import tempfile

import protocol


@contextlib.contextmanager
def written(case, inputs, form):
    """The path of the model's file, for inputs of this shape, while it is needed."""
    if case["model"] != "MiniLM" or case["phase"] != "encode":
        raise protocol.CannotDo("only MiniLM's hidden states are compared")
    with tempfile.TemporaryDirectory(prefix="attend-bench-") as folder:
        path = pathlib.Path(folder, "model.xml" if form == "openvino" else "model.onnx")
        done = subprocess.run([sys.executable, __file__, form, *map(str, inputs["ids"].shape), path], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)
        if not path.exists():
            raise RuntimeError(f"not exported: {done.stderr.strip().splitlines()[-1:]}")
        yield path


def write(form, batch, length, path):
    import torch
    import transformers

    import weights

    class HiddenStates(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids).last_hidden_state

    folder = weights.folder_of({"folder": ""})
    model = HiddenStates(transformers.BertModel.from_pretrained(folder, attn_implementation="sdpa").eval())
    ids = torch.zeros(batch, length, dtype=torch.int64)
    with torch.no_grad():
        if form == "openvino":
            import openvino

            made = openvino.convert_model(model, example_input=ids)
            made.reshape([batch, length])
            openvino.save_model(made, path, compress_to_fp16=False)
        else:
            torch.onnx.export(model, (ids,), path, input_names=["ids"], output_names=["out"], external_data=False,
                              opset_version=int(form.removeprefix("onnx-")))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
