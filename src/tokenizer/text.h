// A part of a text, what normalisation makes of it, and which bytes of the text each of its bytes stands for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/growth.h"
#include "tokenizer/unicode.h"

namespace attend::inline v1::tokenizer {

// Bytes of the text that is encoded.
struct Span {
  std::uint32_t begin, end;
};

// Characters with their spans: what normalisers change.
class Characters {
 public:
  // `text` begins at byte `begin` of the text that is encoded. It is UTF-8. What changes it throws where it grows
  // beyond `growth`, which outlives it.
  Characters(std::string_view text, std::uint32_t begin, const Growth& growth);

  const std::u32string& points() const { return points_; }
  const std::vector<Span>& spans() const { return spans_; }
  const Growth& growth() const { return *growth_; }

  // Puts `changes` in the place of everything behind the first `removed` characters, which go. What takes a character's
  // place has its span, what is new that of the character before it.
  void change(const std::vector<Changed>& changes, std::size_t removed = 0);
  // Keeps the characters for which keep() is true.
  template <class Keep>
  void filter(Keep keep);
  void prepend(std::u32string_view text);
  // Each character as change(point) gives it.
  template <class Change>
  void map(Change change);
  // `with` in the place of the characters from `begin` up to `end`.
  struct Replacement {
    std::size_t begin, end;
  };
  void replace(const std::vector<Replacement>& places, std::u32string_view with);

 private:
  std::u32string points_;
  std::vector<Span> spans_;
  std::uint32_t begin_;
  const Growth* growth_;
};

// UTF-8 with its spans, cut into parts: what pre-tokenisers cut and change.
class AlignedText {
 public:
  // The text as it stands from byte `begin` on: each character stands for itself.
  AlignedText(std::string_view text, std::uint32_t begin, const Growth& growth)
      : begin_(begin), text_(text), growth_(&growth) {}
  explicit AlignedText(const Characters& characters);
  // No text yet, which may grow as that one.
  static AlignedText begun(const AlignedText& like) { return {"", 0, *like.growth_}; }

  std::string_view text() const { return text_; }
  // What the bytes from begin up to end stand for; whole characters.
  Span span(std::size_t begin, std::size_t end) const;

  // Appends a part of another text, or something new with a span. Throws where it grows beyond what it may.
  void append(const AlignedText& from, std::size_t begin, std::size_t end);
  void append(std::string_view text, Span span);

 private:
  bool as_it_stands() const { return spans_.empty(); }

  std::uint32_t begin_ = 0;
  std::string text_;
  std::vector<Span> spans_;  // of each byte; empty: as it stands
  const Growth* growth_;
};

template <class Change>
void Characters::map(Change change) {
  for (char32_t& point : points_) point = change(point);
}

template <class Keep>
void Characters::filter(Keep keep) {
  std::vector<Changed> kept;
  std::size_t removed = 0;  // before the first that is kept
  for (const char32_t point : points_) {
    if (keep(point)) {
      kept.push_back({point, 0});
    } else if (kept.empty()) {
      ++removed;
    } else {
      --kept.back().change;
    }
  }
  if (kept.size() < points_.size()) change(kept, removed);
}

}  // namespace attend::inline v1::tokenizer
