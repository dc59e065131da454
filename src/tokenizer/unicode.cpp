#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/utf8.h"
#include "tokenizer/unicode_scripts.h"
#include "tokenizer/unicode_table.h"

namespace attend::inline v1::tokenizer {

namespace {

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

bool between(char32_t point, char32_t first, char32_t last) {
  return first <= point && point <= last;
}

// ---- Graphemes ----

// One that utf8proc treats as `tokenizers` does this one.
char32_t known_point(char32_t point) {
  if (holds(more_extenders, point)) return 0x300;
  if (holds(more_spacing_marks, point)) return 0x903;
  if (holds(not_pictographs, point) || point == 0x11a3a) return U'a';
  if (holds(more_pictographs, point)) return 0x2122;
  if (point == 0x113d1) return 0x600;
  const bool is_control = point == 0x2065 || between(point, 0xfff0, 0xfff8) ||
                          (between(point, 0xe0000, 0xe0fff) && category(point) == UTF8PROC_CATEGORY_CN);
  return is_control ? 1 : point;
}

// Whether it may stand between an Indic consonant and a linker.
bool extends(char32_t known) {
  const int of = utf8proc_get_property(static_cast<utf8proc_int32_t>(known))->boundclass;
  return (of == UTF8PROC_BOUNDCLASS_EXTEND && known != 0x200c) || of == UTF8PROC_BOUNDCLASS_ZWJ;
}

// ---- Normal forms ----

int combining_class(char32_t point) {
  if (point < 0x300 || holds(not_ordered, point)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(point))->combining_class;
}

// The characters of the whole decomposition, each with its combining class, marks in canonical order.
class Decomposed {
 public:
  explicit Decomposed(bool compatibility)
      : options_(compatibility ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE) {}

  struct Part {
    Changed part;
    int combining_class;
  };

  void append(char32_t point) {
    if (point < 0xa0 || holds(not_decomposed, point)) return push({point, 0});
    std::array<utf8proc_int32_t, 32> parts{};  // the longest has 18
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts.data(), std::ssize(parts),
                                static_cast<utf8proc_option_t>(options_), &boundary);
    for (utf8proc_ssize_t n = 0; n < count; ++n) {
      push({static_cast<char32_t>(parts[static_cast<std::size_t>(n)]), n > 0 ? 1 : 0});
    }
  }
  std::size_t size() const { return parts_.size(); }
  std::vector<Part> take() {
    sort_marks();
    return std::move(parts_);
  }

 private:
  void push(Changed part) {
    const int of = combining_class(part.point);
    if (of == 0) sort_marks();
    parts_.push_back({part, of});
    if (of == 0) sorted_ = parts_.size();
  }
  void sort_marks() {
    std::stable_sort(parts_.begin() + static_cast<std::ptrdiff_t>(sorted_), parts_.end(),
                     [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
    sorted_ = parts_.size();
  }

  int options_;
  std::vector<Part> parts_;
  std::size_t sorted_ = 0;
};

// The one character that is the same as these two, if there is one.
std::optional<char32_t> compose(char32_t first, char32_t second) {
  if (second < 0x300 || holds(not_decomposed, first) || holds(not_decomposed, second)) return std::nullopt;
  std::array<utf8proc_int32_t, 2> both = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second)};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  if (utf8proc_normalize_utf32(both.data(), 2, options) != 1) return std::nullopt;
  const auto composed = static_cast<char32_t>(both[0]);
  return holds(not_decomposed, composed) ? std::nullopt : std::optional(composed);
}

// Starters with the marks that combine with them; what can't be combined follows.
class Composed {
 public:
  void append(const Decomposed::Part& next) {
    if (!starter_) {
      if (next.combining_class != 0) return out_.push_back(next.part);
      starter_ = next.part;
      return;
    }
    const bool blocked = last_class_ && *last_class_ >= next.combining_class;
    const std::optional<char32_t> both = blocked ? std::nullopt : compose(starter_->point, next.part.point);
    if (both) {
      starter_ = {*both, starter_->change + next.part.change - 1};
    } else if (next.combining_class == 0) {
      flush();
      starter_ = next.part;
    } else {
      marks_.push_back(next.part);
      last_class_ = next.combining_class;
    }
  }
  std::vector<Changed> take() {
    flush();
    return std::move(out_);
  }

 private:
  void flush() {
    if (starter_) out_.push_back(*starter_);
    out_.insert(out_.end(), marks_.begin(), marks_.end());
    marks_.clear(), last_class_.reset(), starter_.reset();
  }

  std::optional<Changed> starter_;
  std::vector<Changed> marks_, out_;
  std::optional<int> last_class_;
};

}  // namespace

bool is_white_space(char32_t point) {
  if (point < 0x80) return point == ' ' || between(point, 0x9, 0xd);
  return point == 0x85 || point == 0xa0 || point == 0x1680 || between(point, 0x2000, 0x200a) ||
         between(point, 0x2028, 0x2029) || point == 0x202f || point == 0x205f || point == 0x3000;
}

std::string strip_space(std::string_view text) {
  const auto is_space = [](char32_t point) { return is_white_space(point) || between(point, 0x1c, 0x1f); };
  const std::u32string points = decode_utf8(text, {"Tokenizer", "text"});
  const auto begin = std::ranges::find_if_not(points, is_space);
  const auto end = std::find_if_not(points.rbegin(), std::make_reverse_iterator(begin), is_space).base();
  return encode_utf8(std::u32string(begin, end));
}

bool is_control(char32_t point) {
  if (point < 0x7f) return point < 0x20 && point != '\t' && point != '\n' && point != '\r';
  const utf8proc_category_t of = category(point);
  return (of == UTF8PROC_CATEGORY_CC || of == UTF8PROC_CATEGORY_CF || of == UTF8PROC_CATEGORY_CO) &&
         !holds(not_control, point);
}

bool is_accent(char32_t point) {
  if (point < 0x300) return false;
  return category(point) == UTF8PROC_CATEGORY_MN ? !holds(not_accents, point) : point == 0x1734;
}

bool is_mark(char32_t point) {
  if (point < 0x300) return false;
  const utf8proc_category_t of = category(point);
  return (of >= UTF8PROC_CATEGORY_MN && of <= UTF8PROC_CATEGORY_ME) ? !holds(not_combining, point)
                                                                    : between(point, 0x1cf2, 0x1cf3);
}

int script_of(char32_t point) {
  const auto after = std::ranges::upper_bound(scripts, point, {}, &ScriptRange::first);
  if (after == scripts.begin() || point > std::prev(after)->last) return 0;
  return std::prev(after)->script;
}

bool Graphemes::begins_at(char32_t point) {
  const auto is_plain = [](char32_t of) { return of >= 0x20 && of < 0x7f; };
  const char32_t known = is_plain(point) ? point : known_point(point);
  bool begins = !last_;
  if (last_ && is_plain(*last_) && is_plain(point)) {
    begins = true;
  } else if (last_) {
    begins = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(*last_),
                                              static_cast<utf8proc_int32_t>(known), &state_);
  }
  last_ = known;
  if (is_plain(point)) {
    indic_ = Indic::none;
  } else if (holds(indic_consonants, point)) {
    begins = begins && indic_ != Indic::linked;
    indic_ = Indic::consonant;
  } else if (indic_ != Indic::none && holds(indic_linkers, point)) {
    indic_ = Indic::linked;
  } else if (!extends(known)) {
    indic_ = Indic::none;
  }
  return begins;
}

bool is_punctuation(char32_t point) {
  if (point < 0x80) {
    return between(point, '!', '/') || between(point, ':', '@') || between(point, '[', '`') || between(point, '{', '~');
  }
  const utf8proc_category_t of = category(point);
  return of >= UTF8PROC_CATEGORY_PC && of <= UTF8PROC_CATEGORY_PO ? !holds(not_punctuation, point)
                                                                  : holds(more_punctuation, point);
}

bool is_number(char32_t point) {
  if (point < 0x80) return between(point, '0', '9');
  const utf8proc_category_t of = category(point);
  return (of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO) || holds(more_numbers, point);
}

bool is_cjk(char32_t point) {
  return between(point, 0x4e00, 0x9fff) || between(point, 0x3400, 0x4dbf) || between(point, 0x20000, 0x2a6df) ||
         between(point, 0x2a700, 0x2b81f) || between(point, 0x2b920, 0x2ceaf) || between(point, 0xf900, 0xfaff) ||
         between(point, 0x2f800, 0x2fa1f);
}

bool is_word(char32_t point) {
  const utf8proc_category_t of = category(point);
  const bool circled = between(point, 0x24b6, 0x24e9) || between(point, 0x1f130, 0x1f149) ||
                       between(point, 0x1f150, 0x1f169) || between(point, 0x1f170, 0x1f189);
  return (of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_NL) || of == UTF8PROC_CATEGORY_PC || circled ||
         between(point, 0x200c, 0x200d) || holds(more_words, point);
}

void append_lower(char32_t point, std::u32string& to) {
  if (point < 0x80) {
    to.push_back(between(point, 'A', 'Z') ? point + 32 : point);
  } else if (point == 0x130) {
    to += U"i\u0307";
  } else if (point == 0x1c89 || point == 0xa7cc || point == 0xa7ce || point == 0xa7d2 || point == 0xa7d4 ||
             point == 0xa7da) {
    to.push_back(point + 1);
  } else if (point == 0xa7cb) {
    to += char32_t{0x264};
  } else if (point == 0xa7dc) {
    to += char32_t{0x19b};
  } else if (between(point, 0x10d50, 0x10d65)) {
    to.push_back(point + 32);
  } else if (between(point, 0x16ea0, 0x16eb8)) {
    to.push_back(point + 27);
  } else {
    to += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point)));
  }
}

std::vector<Changed> normalize(std::u32string_view text, NormalForm form, const Growth& growth) {
  Decomposed decomposed(form == NormalForm::nfkd || form == NormalForm::nfkc);
  for (const char32_t point : text) {
    decomposed.append(point);
    growth.check(decomposed.size());
  }
  const bool composes = form == NormalForm::nfc || form == NormalForm::nfkc;
  Composed composed;
  std::vector<Changed> out;
  for (const Decomposed::Part& part : decomposed.take()) {
    if (composes) {
      composed.append(part);
    } else {
      out.push_back(part.part);
    }
  }
  return composes ? composed.take() : out;
}

}  // namespace attend::inline v1::tokenizer
