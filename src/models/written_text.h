// What is written as text: shown a token at a time, and ended by a stop string.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tokenizer.h"

namespace attend::inline v1::models {

// A token costs what it and the few before it cost, however long the text is.
class WrittenText {
 public:
  // before: what the text that is written comes after; its end may begin a stop string. Both must outlive it.
  WrittenText(const Tokenizer& tokenizer, std::span<const std::int64_t> before, const std::vector<std::string>& stops);

  // What the token adds, but for what may change with the next: bytes of a character that is not whole, and what may
  // begin a stop string.
  std::string add(std::int64_t id);
  // What was kept back; nothing of a stop string.
  std::string end();
  // Whether a stop string has ended the text, and how many bytes of Tokenizer::decode()'s text, up to its end, it and
  // what follows it take.
  bool stopped() const { return stopped_; }
  std::size_t cut() const { return cut_; }

 private:
  void settle();
  bool find_stop(std::string_view fresh);
  std::string shown(bool all);

  const Tokenizer* tokenizer_;
  const std::vector<std::string>* stops_;
  // Tokens whose text is not settled yet, and before them some that are: how many, and the bytes of their text.
  std::vector<std::int64_t> ids_;
  std::size_t settled_ = 0, settled_bytes_ = 0;
  std::string tail_;     // the settled text's last bytes, in which a stop string may begin
  std::string pending_;  // settled, and not shown
  std::size_t longest_ = 0;
  bool stopped_ = false;
  std::size_t cut_ = 0;
};

}  // namespace attend::inline v1::models
