// How much a tokenizer's file may make of what it is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attend::inline v1::tokenizer {

// Bytes of what a file may set beside each character of a word, or behind each message.
constexpr std::size_t longest_affix = 1024;

// The limit of one call, which all its steps share. Of no real tokenizer a text comes near it: the most that Unicode's
// normal forms make of a character is 33 bytes of 3 (U+FDFA), twice as many once bytes are written as characters.
class Growth {
 public:
  static constexpr std::uint64_t times = 32, and_so_many = 1 << 20;

  // function: that messages begin with. given: so many bytes.
  Growth(const char* function, std::uint64_t given)
      : function_(function), most_(times * given + and_so_many), left_(most_) {}

  // Throws bad_value where this much, in characters, bytes or tokens, is more than may still be made.
  void check(std::uint64_t made) const {
    if (made > left_) fail_too_much();
  }
  // It stays: what else is made is so much less.
  void keep(std::uint64_t made) {
    check(made);
    left_ -= made;
  }

 private:
  [[noreturn]] void fail_too_much() const;

  const char* function_;
  std::uint64_t most_, left_;
};

}  // namespace attend::inline v1::tokenizer
