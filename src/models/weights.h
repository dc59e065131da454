// A model's tensors by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor.h"
#include "core/message.h"
#include "models/weight_matrix.h"

namespace attend::inline v1::models {

// Whether numbers of that dtype can be read where they lie in a file.
inline bool is_aligned(const std::byte* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(size_of(dtype)) == 0;
}

// Where they lie: mapped from their files, or in memory of their own. Copies share both.
class Weights {
 public:
  // place: of messages, the folder or the file.
  explicit Weights(Place place) : place_(std::move(place)) {}
  // model.safetensors, or model.safetensors.index.json and the shards that it names. Throws bad_file.
  static Weights open(std::string_view function, const std::filesystem::path& folder);

  // No name comes twice.
  void add(std::string name, Tensor tensor);
  // What owns the view's memory is kept as long as this is.
  void add(std::string name, const View& view, std::shared_ptr<const void> owner);

  void add(std::string name, const QuantizedView& blocks, std::shared_ptr<const void> owner);

  // Of a matrix that is there: it is seen the other way round.
  void transpose(std::string_view name);

  // Null where there is none.
  const Matrix* find(std::string_view name) const;
  const std::map<std::string, Matrix, std::less<>>& all() const { return tensors_; }
  const Place& place() const { return place_; }

 private:
  void own(std::shared_ptr<const void> owner);

  Place place_;
  std::map<std::string, Matrix, std::less<>> tensors_;
  std::vector<std::shared_ptr<const void>> owners_;
};

}  // namespace attend::inline v1::models
