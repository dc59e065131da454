// Many texts through a model: tokens of a window of them at a time, packed into passes that keep all cores busy.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attend/models.h"

namespace attend::inline v1::models {

struct TextTokens {
  std::vector<std::int64_t> ids, types;
  bool cut = false;
  std::int64_t unseen = 0;  // so many of the last ids no token sees
};
// At most so many tokens, of which those that the tokenizer adds are kept. begin: the beginning is cut, instead of the
// end. Of a pair the longer text is cut first, and then both (the "longest first" of `tokenizers`).
Encoding cut_encoding(Encoding from, std::int64_t most, bool begin);

// The hidden states [N,E] of one pass: of text `texts[n]` those from starts[n] on.
struct TextPass {
  const Tensor& hidden;
  std::span<const std::size_t> texts;
  std::span<const std::int64_t> ids, starts;
};

struct TextPasses {
  std::size_t count = 0;
  std::function<std::size_t(std::size_t)> bytes;  // of text n
  std::function<TextTokens(std::size_t)> tokens;  // of text n; called by several threads
  std::function<void(const TextPass&)> use;       // called by several threads
  bool first = false;  // of each text its first token's state alone is made and used: all have one row then
  std::function<void(double)> progress = {};  // told the share that is done, by the calling thread
};
// How many of them were cut. Memory does not grow with their number. Of several whose tokens() throws the first is
// told. Bits: of a text the same alone as among others.
std::int64_t run_passes(const Model& model, const TextPasses& passes);

}  // namespace attend::inline v1::models
