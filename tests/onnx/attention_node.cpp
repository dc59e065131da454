// attend_onnx_attention FILE...: runs ONNX's operator Attention (opsets 23 to 25) by means of the library, once for
// each FILE (.safetensors), and writes its outputs to FILE.out. The tensors have the operator's names of inputs and
// outputs; the metadata holds its attributes. For tests/onnx/test_attention_nodes.py.
#include <cstdio>
#include <limits>
#include <string>

#include "attend/attend.h"

namespace {

using attend::AttentionOptions;
using attend::DType;
using attend::Offset;
using attend::Tensor;
using attend::View;

// One node with its inputs and attributes; what it lacks has ONNX's default.
struct Node {
  attend::Safetensors file;

  bool has(const char* input) const { return file.tensors.contains(input); }
  View input(const char* name) const { return file.tensors.at(name); }
  double number(const char* attribute, double otherwise) const {
    const auto found = file.metadata.find(attribute);
    return found == file.metadata.end() ? otherwise : std::stod(found->second);
  }
  std::int64_t integer(const char* attribute, std::int64_t otherwise) const {
    return static_cast<std::int64_t>(number(attribute, static_cast<double>(otherwise)));
  }
};

// [B,T,heads*D] -> [B,heads,T,D]; four axes stay as they are.
View split_heads(const View& x, std::int64_t heads) {
  if (x.rank() == 4) return x;
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).permute({0, 2, 1, 3});
}

// The past keys (or values) and then the new ones.
Tensor concatenate(const View& past, const View& x) {
  const std::int64_t middle = past.size(2), end = middle + x.size(2);
  Tensor out = Tensor::uninitialized({x.size(0), x.size(1), end, x.size(3)}, x.dtype());
  out.view().slice(2, 0, middle).copy_from(past);
  out.view().slice(2, middle, end).copy_from(x);
  return out;
}

Tensor present(const Node& node, const char* input, const char* past) {
  const View x = split_heads(node.input(input), node.integer("kv_num_heads", 0));
  return node.has(past) ? concatenate(node.input(past), x) : x.clone();
}

// A mask for fewer keys than there are hides the rest.
Tensor pad_mask(const View& mask, std::int64_t keys) {
  attend::Dims shape = mask.shape();
  const std::int64_t given = mask.size(-1);
  if (given >= keys) return mask.clone();
  shape[mask.rank() - 1] = keys;
  Tensor out(shape, mask.dtype());  // false
  out.view().slice(-1, 0, given).copy_from(mask);
  const auto tail = out.view().slice(-1, given, keys);
  if (mask.dtype() != DType::boolean) {
    const Tensor hidden = Tensor::from({1}, {-std::numeric_limits<float>::infinity()}).view().to(mask.dtype());
    tail.copy_from(hidden.view().broadcast_to(tail.shape()));
  }
  return out;
}

// Query 0 comes after the past keys, or so that the last query is level with the last key that is no padding, or first.
Offset offset_of(const Node& node) {
  if (node.has("past_key")) return Offset(node.input("past_key").size(2));
  return node.has("nonpad_kv_seqlen") ? Offset::bottom_right() : Offset::top_left();
}

// softmax_precision has no counterpart: the library's softmax is never less precise than f32.
AttentionOptions options_of(const Node& node, const Tensor& mask) {
  AttentionOptions options{.causal = node.integer("is_causal", 0) != 0, .offset = offset_of(node)};
  if (node.file.metadata.contains("scale")) options.scale = node.number("scale", 0);
  options.window = {node.integer("left_window_size", -1), node.integer("right_window_size", -1)};
  options.softcap = node.number("softcap", 0);
  if (node.has("attn_mask")) (mask.dtype() == DType::boolean ? options.mask : options.bias) = mask;
  if (node.has("nonpad_kv_seqlen")) options.key_lengths = node.input("nonpad_kv_seqlen");
  return options;
}

Tensor qk_matmul_output(std::int64_t mode, const View& q, const View& k, const View& v, const AttentionOptions& all) {
  if (mode == 0) return attend::attention_steps(q, k, v, all).scaled_scores;
  if (mode == 1) return attend::attention_steps(q, k, v, {.scale = all.scale, .softcap = all.softcap}).logits;
  if (mode == 2) return attend::attention_steps(q, k, v, all).logits;
  return attend::attention_steps(q, k, v, all).weights;
}

attend::TensorMap run(const Node& node) {
  const View q = split_heads(node.input("Q"), node.integer("q_num_heads", 0));
  attend::TensorMap out;
  Tensor& k = out["present_key"] = present(node, "K", "past_key");
  Tensor& v = out["present_value"] = present(node, "V", "past_value");
  const Tensor mask = node.has("attn_mask") ? pad_mask(node.input("attn_mask"), k.size(2)) : Tensor();
  const AttentionOptions options = options_of(node, mask);

  Tensor& y = out["Y"] = attend::attention(q, k, v, options).out;
  if (node.input("Q").rank() == 3) {  // [B,H,Tq,Dv] -> [B,Tq,H*Dv]
    y = y.view().permute({0, 2, 1, 3}).clone().view().reshape({q.size(0), q.size(2), -1}).clone();
  }
  const std::int64_t mode = node.integer("qk_matmul_output_mode", 0);
  out["qk_matmul_output"] = qk_matmul_output(mode, q, k, v, options).view().to(q.dtype());
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  int failed = 0;
  for (int i = 1; i < argc; ++i) {
    try {
      const std::string path = argv[i];
      const attend::TensorMap out = run({attend::read_safetensors(path)});
      attend::write_safetensors(path + ".out", attend::views_of(out));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      failed = 1;
    }
  }
  return failed;
}
