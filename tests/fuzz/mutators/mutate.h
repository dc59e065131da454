// Mutations that keep a file's form, for libFuzzer: what it changes byte by byte is mostly refused at the first brace
// or the first length, long before what the file says is looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>

namespace attend::fuzz {

using Random = std::minstd_rand;

// Changes bytes that have no form of their own, and makes them at most `longest` bytes: LLVMFuzzerMutate() does, which
// knows what the code under test compares them with.
using MutateBytes = std::function<std::string(std::string bytes, std::size_t longest)>;

// One value, name or element of the JSON is another; `names` are some that the reader asks for. What is no JSON begins
// as an empty object.
std::string mutate_json(std::string_view text, std::span<const std::string_view> names, Random& random,
                        const MutateBytes& mutate_bytes);

// One value or tensor of a GGUF file is another; counts, lengths and offsets are those of what the file then holds, and
// of one in eight files one of them is wrong. What is no GGUF file is changed byte by byte.
std::string mutate_gguf(std::string_view bytes, Random& random, const MutateBytes& mutate_bytes);

// Numbers at which sizes and ids tend to break.
std::int64_t telling_number(std::int64_t now, Random& random);

// Below `count`, which is at least 1.
inline std::size_t below(std::size_t count, Random& random) {
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
}
inline bool one_in(std::size_t count, Random& random) {
  return below(count, random) == 0;
}

}  // namespace attend::fuzz
