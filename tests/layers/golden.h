// The golden data of the layers; tests/golden/make_layers_golden.py says what the names mean.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/expect.h"

namespace attend::test {

inline const TensorMap& layers_golden() {
  static const TensorMap tensors = read_safetensors(data("golden/layers.safetensors")).tensors;
  return tensors;
}

inline View golden(const std::string& name) {
  return layers_golden().at(name);
}

inline std::optional<View> golden_if_any(const std::string& name) {
  const auto found = layers_golden().find(name);
  return found == layers_golden().end() ? std::nullopt : std::optional<View>(found->second.view());
}

// make_layers_backward_golden.py: the gradients of a case's doutput.
inline const TensorMap& backward_golden() {
  static const TensorMap tensors = read_safetensors(data("golden/layers_backward.safetensors")).tensors;
  return tensors;
}

// The seeds of layers_init.safetensors, as text and number.
inline std::vector<std::pair<std::string, std::uint64_t>> seeds() {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{123}, std::uint64_t{42}, (std::uint64_t{1} << 63) + 5})
    out.emplace_back(std::to_string(seed), seed);
  return out;
}

inline const TensorMap& init_golden() {
  static const TensorMap tensors = read_safetensors(data("golden/layers_init.safetensors")).tensors;
  return tensors;
}

// Numbers within 1 that no layout repeats: sin(step), sin(2 step), ...
inline Tensor filled(const Dims& shape, double step) {
  Tensor out(shape);
  for (std::int64_t i = 0; i < out.count(); ++i) {
    out.data<float>()[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
  }
  return out;
}

// What torch drew for a layer.
inline View drawn(const std::string& layer, const std::string& seed, const std::string& entry) {
  return init_golden().at(layer + "." + seed + "." + entry);
}

}  // namespace attend::test
