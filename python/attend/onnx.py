"""The ONNX operator Attention."""
