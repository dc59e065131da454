#include "tokenizer/sentencepiece.h"

#include <algorithm>
#include <limits>

#include "core/bit_cast.h"
#include "core/utf8.h"
#include "tokenizer/decode.h"

namespace attend::inline v1::tokenizer {

namespace {

// ---- Protocol buffers ----

// The fields of a message, one after another.
class Fields {
 public:
  Fields(const Place& place, std::string_view bytes) : place_(place), left_(bytes) {}

  // A whole number, or the bytes of a text, of a message or of a number of a fixed size.
  struct Field {
    std::uint64_t number = 0, whole = 0;
    std::string_view bytes = {};
    int type = 0;
  };
  bool done() const { return left_.empty(); }
  Field next() {
    const std::uint64_t key = varint();
    Field field{.number = key >> 3, .type = static_cast<int>(key & 7)};
    switch (field.type) {
      case 0:
        field.whole = varint();
        break;
      case 1:
        field.bytes = take(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.bytes = take(4);
        break;
      default:
        fail_at(place_, "a field of the type {}: this is not a SentencePiece model", field.type);
    }
    return field;
  }
  // The field, which is of this type.
  const Field& of_type(const Field& field, int type) const {
    if (field.type != type)
      fail_at(place_, "the field {} has the type {}, expected {}", field.number, field.type, type);
    return field;
  }
  std::string_view message(const Field& field) const { return of_type(field, 2).bytes; }
  std::string text(const Field& field) const {
    if (!is_utf8(message(field))) fail_at(place_, "the field {} is not UTF-8", field.number);
    return std::string(field.bytes);
  }
  bool truth(const Field& field) const { return of_type(field, 0).whole != 0; }
  float number(const Field& field) const {
    std::uint32_t bits = 0;
    for (std::size_t n = 4; n-- > 0;) bits = bits << 8 | static_cast<unsigned char>(of_type(field, 5).bytes[n]);
    return bit_cast<float>(bits);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1).front());
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail_at(place_, "a number of more than 64 bits: this is not a SentencePiece model");
  }
  std::string_view take(std::uint64_t size) {
    if (size > left_.size())
      fail_at(place_, "{} bytes where {} are left: this is not a SentencePiece model", size, left_.size());
    const std::string_view bytes = left_.substr(0, static_cast<std::size_t>(size));
    left_.remove_prefix(bytes.size());
    return bytes;
  }

  const Place& place_;
  std::string_view left_;
};

}  // namespace

// ---- The file ----

// sentencepiece_model.proto names the fields by these numbers.
struct SentencePiece::Reader {
  enum : std::uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  const Place& place;
  SentencePiece& to;
  std::string charsmap = {};
  std::vector<TokenId> sought = {};  // the pieces that a text is cut into
  float least = std::numeric_limits<float>::max();
  std::size_t bytes = 0;

  void model(std::string_view message) {
    for (Fields fields(place, message); !fields.done();) {
      const Fields::Field field = fields.next();
      if (field.number == 1) piece(fields.message(field));
      if (field.number == 2) trainer(fields.message(field));
      if (field.number == 3) normalizer(fields.message(field));
      if (field.number == 5) denormalizer(fields.message(field));
    }
  }

  void piece(std::string_view message) {
    std::string text;
    float score = 0;
    std::uint64_t type = normal;
    for (Fields fields(place, message); !fields.done();) {
      const Fields::Field field = fields.next();
      if (field.number == 1) text = fields.text(field);
      if (field.number == 2) score = fields.number(field);
      if (field.number == 3) type = fields.of_type(field, 0).whole;
    }
    const Place here = place.in(fmt::format("piece {}", to.texts_.size()));
    if (type == user_defined || type == byte || type < normal || type > byte)
      fail_at(here, "the type {} is not known; normal (1), unknown (2), control (3) and unused (5) are", type);
    if (text.empty() || score != score) fail_at(here, "expected text and a number");
    const Kind kind = type == unknown ? Kind::unknown : type == control ? Kind::control : Kind::normal;
    if (!to.kinds_.emplace(text, kind).second) fail_at(here, "{} comes twice", quote(text));
    bytes += text.size();
    if (bytes >= UINT32_MAX) fail_at(here, "4 GiB of pieces, expected less");
    if (type == normal) {
      least = std::min(least, score);
      sought.push_back(static_cast<TokenId>(to.texts_.size()));
    }
    to.texts_.push_back(std::move(text)), to.scores_.push_back(score);
  }

  void trainer(std::string_view message) const {
    for (Fields fields(place, message); !fields.done();) {
      const Fields::Field field = fields.next();
      if (field.number == 3 && fields.of_type(field, 0).whole != 1)
        fail_at(place, "the model type {} is not known; Unigram (1) is", field.whole);
      if (field.number == 24 && fields.truth(field)) fail_at(place, "treat_whitespace_as_suffix is not known");
      if (field.number == 35 && fields.truth(field)) fail_at(place, "byte_fallback is not known");
    }
  }

  void normalizer(std::string_view message) {
    for (Fields fields(place, message); !fields.done();) {
      const Fields::Field field = fields.next();
      if (field.number == 2) charsmap = fields.message(field);
      if (field.number == 3) to.prefix_ = fields.truth(field);
      if (field.number == 4) to.drops_spaces_ = fields.truth(field);
      if (field.number == 5) to.marks_spaces_ = fields.truth(field);
    }
  }

  void denormalizer(std::string_view message) const {
    for (Fields fields(place, message); !fields.done();) {
      const Fields::Field field = fields.next();
      if (field.number == 2 && !fields.message(field).empty()) fail_at(place, "a denormalizer is not known");
    }
  }
};

SentencePiece::SentencePiece(const Place& place, std::string_view bytes) {
  Reader reader{place, *this};
  reader.model(bytes);
  if (reader.sought.empty()) fail_at(place, "expected pieces");
  if (std::ranges::count_if(kinds_, [](const auto& each) { return each.second == Kind::unknown; }) != 1)
    fail_at(place, "expected one unknown piece");
  if (!reader.charsmap.empty()) charsmap_.emplace(place.in("precompiled_charsmap"), reader.charsmap);
  unknown_score_ = reader.least - 10;
  std::vector<Trie::Entry> entries;
  entries.reserve(reader.sought.size());
  for (const TokenId id : reader.sought) entries.push_back({texts_[id], id});
  trie_.emplace(std::move(entries));
}

// ---- From text to pieces ----

Charsmap::Match SentencePiece::first(std::string_view text) const {
  if (charsmap_) {
    if (const auto match = charsmap_->longest(text)) return *match;
  }
  std::size_t size = 1;
  while (size < text.size() && !begins_character(text[size])) ++size;
  return {size, text.substr(0, size)};
}

SentencePiece::Normalized SentencePiece::normalize(std::string_view text, const Growth& growth) const {
  Normalized to;
  std::size_t at = 0;
  const auto add = [&](std::string_view part) {
    growth.check(to.text.size() + part.size());
    to.text += part;
    to.origins.resize(to.text.size(), static_cast<std::uint32_t>(at));
  };
  const std::string_view space = marks_spaces_ ? space_mark : " ";
  while (drops_spaces_ && at < text.size()) {
    const Charsmap::Match match = first(text.substr(at));
    if (match.text != " ") break;
    at += match.size;
  }
  if (at == text.size()) return to;
  if (prefix_) add(space);
  for (bool after_space = drops_spaces_; at < text.size();) {
    const Charsmap::Match match = first(text.substr(at));
    std::string_view part = match.text;
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char& byte : part) add(byte == ' ' ? space : std::string_view(&byte, 1));
    if (!part.empty()) after_space = drops_spaces_ && part.ends_with(' ');
    at += match.size;
  }
  std::size_t size = to.text.size();
  while (drops_spaces_ && std::string_view(to.text).substr(0, size).ends_with(space)) {
    size -= space.size();
    at = to.origins[size];
  }
  to.text.erase(size);
  to.origins.resize(size);
  to.origins.push_back(static_cast<std::uint32_t>(at));
  return to;
}

std::vector<SentencePiece::Piece> SentencePiece::encode(std::string_view text, Growth& growth) const {
  const Normalized normalized = normalize(text, growth);
  growth.keep(normalized.text.size());
  std::vector<Piece> pieces;
  bool was_unknown = false;
  for (const PathToken& token : best_path<float>(normalized.text, *trie_, scores_, unknown_score_)) {
    const std::string_view part = std::string_view(normalized.text).substr(token.begin, token.end - token.begin);
    const std::uint32_t end = normalized.origins[token.end];
    if (!token.id && was_unknown) {
      pieces.back().text += part, pieces.back().end = end;
    } else {
      pieces.push_back({std::string(part), normalized.origins[token.begin], end});
    }
    was_unknown = !token.id;
  }
  return pieces;
}

// ---- From pieces to text ----

// Spaces at the beginning go, as long as there is nothing before them.
std::string SentencePiece::decode(std::span<const std::string> pieces) const {
  std::string text;
  bool dropped = false;
  for (std::string_view piece : pieces) {
    const auto found = kinds_.find(piece);
    if (found == kinds_.end()) {
      text += piece;  // as it is
    } else if (found->second == Kind::unknown) {
      text += " \xe2\x81\x87 ";  // U+2047
    } else if (found->second == Kind::normal) {
      if (text.empty() && !dropped && (prefix_ || drops_spaces_) && piece.starts_with(space_mark)) {
        piece.remove_prefix(space_mark.size());
        dropped = !drops_spaces_;
      }
      std::string part(piece);
      replace_all(part, space_mark, " ");
      text += part;
    }
  }
  return text;
}

}  // namespace attend::inline v1::tokenizer
