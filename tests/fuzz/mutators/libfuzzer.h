// How a mutation of this folder is handed to libFuzzer, which calls LLVMFuzzerCustomMutator() where a target has one.
#pragma once

#include <algorithm>
#include <cstring>

#include "tests/fuzz/mutators/mutate.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);
// Its signature is libFuzzer's.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

namespace attend::fuzz {

inline std::string mutate_bytes(std::string bytes, std::size_t longest) {
  const std::size_t size = std::min(bytes.size(), longest);
  bytes.resize(std::max<std::size_t>(longest, 1));
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
  return bytes;
}

// mutate(input, random) gives the new input. One in eight is changed byte by byte, and so is one that became too long.
template <class Mutate>
std::size_t mutate_input(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed, Mutate mutate) {
  Random random(seed);
  if (!one_in(8, random)) {
    const std::string made = mutate(std::string_view(reinterpret_cast<const char*>(data), size), random);
    if (made.size() <= most) {
      std::memcpy(data, made.data(), made.size());
      return made.size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}

// JSON up to the first byte 0, and behind it what else an input chooses: a quarter of the mutations change that.
inline std::string mutate_json_and_rest(std::string_view input, std::span<const std::string_view> names,
                                        Random& random) {
  const std::size_t end = std::min(input.find('\0'), input.size());
  std::string text(input.substr(0, end)), rest(input.substr(std::min(end + 1, input.size())));
  if (one_in(4, random)) {
    rest = mutate_bytes(std::move(rest), rest.size() + 64);
  } else {
    text = mutate_json(text, names, random, mutate_bytes);
  }
  return text + '\0' + rest;
}

}  // namespace attend::fuzz
