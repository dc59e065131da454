// A vector that is sized and indexed as tensors are: by std::int64_t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace attend::inline v1 {

template <class T>
class SignedVector : public std::vector<T> {
 public:
  SignedVector() = default;
  explicit SignedVector(std::int64_t size, T value = T()) : std::vector<T>(static_cast<std::size_t>(size), value) {}

  void resize(std::int64_t size) { std::vector<T>::resize(static_cast<std::size_t>(size)); }
  void assign(std::int64_t size, T value) { std::vector<T>::assign(static_cast<std::size_t>(size), value); }

  T& operator[](std::int64_t i) { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
  const T& operator[](std::int64_t i) const { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
};

}  // namespace attend::inline v1
