#include <utility>

#include "core/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/pattern.h"
#include "tokenizer/read.h"
#include "tokenizer/steps.h"

namespace attend::inline v1::tokenizer {

namespace {

void lower(Characters& text) {
  std::vector<Changed> changes;
  changes.reserve(text.points().size());
  std::u32string lowered;
  for (const char32_t point : text.points()) {
    lowered.clear();
    append_lower(point, lowered);
    for (std::size_t n = 0; n < lowered.size(); ++n) changes.push_back({lowered[n], n > 0 ? 1 : 0});
  }
  text.change(changes);
}

void clean(Characters& text) {
  text.filter([](char32_t point) { return point != 0 && point != 0xfffd && !is_control(point); });
  text.map([](char32_t point) { return is_white_space(point) ? U' ' : point; });
}

// As Google's translation models had it (Nmt).
void clean_for_translation(Characters& text) {
  text.filter([](char32_t point) {
    return !((point >= 0x1 && point <= 0x8) || point == 0xb || (point >= 0xe && point <= 0x1f) || point == 0x7f ||
             point == 0x8f || point == 0x9f);
  });
  text.map([](char32_t point) {
    const bool is_space = point == 0x9 || point == 0xa || point == 0xc || point == 0xd || point == 0x1680 ||
                          (point >= 0x200b && point <= 0x200f) || point == 0x2028 || point == 0x2029 ||
                          point == 0x2581 || point == 0xfeff || point == 0xfffd;
    return is_space ? U' ' : point;
  });
}

void to_byte_characters(Characters& text) {
  std::vector<Changed> changes;
  for (const char byte : encode_utf8(text.points())) {
    const std::string& character = byte_characters()[static_cast<unsigned char>(byte)];
    changes.push_back({decode_utf8(character, {}).front(), begins_character(byte) ? 0 : 1});
  }
  text.change(changes);
}

void space_ideographs(Characters& text) {
  std::vector<Changed> changes;
  changes.reserve(text.points().size());
  for (const char32_t point : text.points()) {
    if (is_cjk(point)) {
      changes.insert(changes.end(), {{U' ', 0}, {point, 1}, {U' ', 1}});
    } else {
      changes.push_back({point, 0});
    }
  }
  text.change(changes);
}

// The least character that the normal form may change.
char32_t first_changed(NormalForm form) {
  return form == NormalForm::nfc ? 0x300 : form == NormalForm::nfd ? 0xc0 : 0xa0;
}

void put_in_form(Characters& text, NormalForm form) {
  const char32_t first = first_changed(form);
  if (std::ranges::all_of(text.points(), [&](char32_t point) { return point < first; })) return;
  text.change(normalize(text.points(), form, text.growth()));
}

void strip_accents(Characters& text) {
  put_in_form(text, NormalForm::nfd);
  text.filter([](char32_t point) { return !is_accent(point); });
}

void strip_marks(Characters& text) {
  text.filter([](char32_t point) { return !is_mark(point); });
}

void strip(Characters& text, bool left, bool right) {
  const std::u32string& points = text.points();
  std::size_t begin = 0, end = points.size();
  while (left && begin < end && is_white_space(points[begin])) ++begin;
  while (right && begin < end && is_white_space(points[end - 1])) --end;
  if (begin == 0 && end == points.size()) return;
  std::vector<Changed> kept;
  for (std::size_t n = begin; n < end; ++n) kept.push_back({points[n], 0});
  text.change(kept, begin);
}

Normalizer read_bert(const Member& from) {
  from.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool cleans = from["clean_text"].truth(), spaces = from["handle_chinese_chars"].truth(),
             lowers = from["lowercase"].truth(),
             strips = from.given("strip_accents") ? from["strip_accents"].truth() : lowers;
  return [=](Characters& text) {
    if (cleans) clean(text);
    if (spaces) space_ideographs(text);
    if (strips) strip_accents(text);
    if (lowers) lower(text);
  };
}

Normalizer read_replace(const Member& from) {
  from.only({"type", "pattern", "content"});
  Pattern pattern = read_pattern(from["pattern"]);
  // `tokenizers` misplaces what it then puts in, or breaks off.
  if (pattern.may_match_empty()) from["pattern"].refuse("one that matches a character at least");
  return [pattern = std::move(pattern), with = decode_utf8(from["content"].text(), {})](Characters& text) {
    // Parts are in bytes, places in characters.
    const std::string bytes = encode_utf8(text.points());
    std::vector<Characters::Replacement> places;
    std::size_t at = 0;
    for (const Part& part : pattern.parts(bytes)) {
      const std::size_t count = count_characters(std::string_view(bytes).substr(part.begin, part.end - part.begin));
      if (part.match) places.push_back({at, at + count});
      at += count;
    }
    text.replace(places, with);
  };
}

// What a charsmap makes of a text, whose characters are read in turn.
class Charsmapped {
 public:
  Charsmapped(const Charsmap& map, const Growth& growth) : map_(map), growth_(growth) {}

  // So many characters of the text.
  void append(std::string_view grapheme, std::int64_t count) {
    if (grapheme.size() < 6 && replace(grapheme, count)) return;
    for (std::size_t at = 0, next = 0; at < grapheme.size(); at = next) {
      next = at + 1;
      while (next < grapheme.size() && !begins_character(grapheme[next])) ++next;
      const std::string_view one = grapheme.substr(at, next - at);
      if (!replace(one, 1)) changes_.push_back({decode_utf8(one, {}).front(), 0});
    }
  }
  void put(Characters& text) const {
    if (changed_) text.change(changes_);
  }

 private:
  // As `tokenizers` places them: those that are more are new, and where there are less, the last stands for those that
  // went, which may be one before them.
  bool replace(std::string_view text, std::int64_t count) {
    const std::optional<Charsmap::Match> match = map_.shortest(text);
    if (!match) return false;
    changed_ = true;
    const std::u32string points = decode_utf8(match->text, {});
    growth_.check(changes_.size() + points.size());
    for (std::int64_t n = 0; n < std::ssize(points); ++n)
      changes_.push_back({points[static_cast<std::size_t>(n)], n < count ? 0 : 1});
    if (std::ssize(points) < count && !changes_.empty()) changes_.back().change += std::ssize(points) - count;
    return true;
  }

  const Charsmap& map_;
  const Growth& growth_;
  std::vector<Changed> changes_;
  bool changed_ = false;
};

Normalizer read_precompiled(const Member& from) {
  from.only({"type", "precompiled_charsmap"});
  const Member of = from["precompiled_charsmap"];
  return [map = Charsmap(of.place(), decode_base64(of))](Characters& text) {
    Charsmapped mapped(map, text.growth());
    Graphemes graphemes;
    const std::string bytes = encode_utf8(text.points());
    std::size_t begin = 0, at = 0;
    std::int64_t count = 0;
    for (const char32_t point : text.points()) {
      if (graphemes.begins_at(point) && at > 0) {
        mapped.append(std::string_view(bytes).substr(begin, at - begin), count);
        begin = at, count = 0;
      }
      do ++at;
      while (at < bytes.size() && !begins_character(bytes[at]));
      ++count;
    }
    mapped.append(std::string_view(bytes).substr(begin), count);
    mapped.put(text);
  };
}

Normalizer read_normalizer(const Member& from, const std::string& type) {
  constexpr std::pair<const char*, NormalForm> forms[] = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    from.only({"type"});
    return [form = form](Characters& text) { put_in_form(text, form); };
  }
  if (type == "BertNormalizer") return read_bert(from);
  if (type == "Replace") return read_replace(from);
  constexpr std::pair<const char*, void (*)(Characters&)> plain[] = {{"Lowercase", lower},
                                                                     {"StripAccents", strip_marks},
                                                                     {"Nmt", clean_for_translation},
                                                                     {"ByteLevel", to_byte_characters}};
  for (const auto& [name, step] : plain) {
    if (type != name) continue;
    from.only({"type"});
    return step;
  }
  if (type == "Precompiled") return read_precompiled(from);
  if (type == "Strip") {
    from.only({"type", "strip_left", "strip_right"});
    return [left = from["strip_left"].truth(), right = from["strip_right"].truth()](Characters& text) {
      strip(text, left, right);
    };
  }
  if (type == "Prepend") {
    from.only({"type", "prepend"});
    std::u32string before = decode_utf8(from["prepend"].text(), {});
    // `tokenizers` then takes the text's first character for one that was added.
    if (before.empty()) from["prepend"].refuse("text");
    return [before = std::move(before)](Characters& text) { text.prepend(before); };
  }
  fail_at(from.place(), "the normalizer {} is not known", quote(type));
}

}  // namespace

std::vector<Normalizer> read_normalizers(const Member& from) {
  std::vector<Normalizer> steps;
  const auto read = [&](const Member& step, const std::string& type) { steps.push_back(read_normalizer(step, type)); };
  for_each_step(from, "normalizers", read);
  return steps;
}

}  // namespace attend::inline v1::tokenizer
