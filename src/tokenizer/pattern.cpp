#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "core/utf8.h"
#include "io/file.h"
#include "tokenizer/unicode_table.h"

namespace attend::inline v1::tokenizer {

namespace {

// ---- From Oniguruma's language to PCRE2's ----

// A Unicode property, and what it holds beyond PCRE2's, in ranges.
struct Property {
  std::string_view name, pcre2;
  std::vector<std::span<const CodePointRange>> more;
};

const std::vector<Property>& properties() {
  static const std::vector<Property> all = {
      {"L", "\\p{L}", {more_lu, more_ll, more_lm, more_lo}},
      {"N", "\\p{N}", {more_nd, more_no}},
      {"M", "\\p{M}", {more_m}},
      {"P", "\\p{P}", {more_p}},
      {"S", "\\p{S}", {more_s}},
      {"Z", "\\p{Z}", {}},
      {"Lu", "\\p{Lu}", {more_lu}},
      {"Ll", "\\p{Ll}", {more_ll}},
      {"Lt", "\\p{Lt}", {}},
      {"Lm", "\\p{Lm}", {more_lm}},
      {"Lo", "\\p{Lo}", {more_lo}},
      {"Nd", "\\p{Nd}", {more_nd}},
  };
  return all;
}

// PCRE2's own \s also takes U+180E.
constexpr std::string_view white_space = "\\x{9}-\\x{d}\\x{85}\\p{Z}";

class Translation {
 public:
  Translation(const Place& place, std::string_view from) : place_(place), from_(from) {}

  std::string run() {
    while (at_ < from_.size()) {
      const char next = from_[at_];
      if (next == '\\') {
        escape(false);
      } else if (next == '[') {
        bracket();
      } else if (next == '(') {
        open();
      } else if (next == ')') {
        close();
      } else if (next == '^' || next == '$') {
        refuse(std::string(1, next));  // Oniguruma's match at every line
      } else if (from_.substr(at_, 2) == "{," || from_.substr(at_, 2) == "}+") {
        refuse(from_.substr(at_, 2));  // read otherwise by each of the two
      } else {
        fold(next);
        copy(1);
      }
    }
    return std::move(to_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail_at(place_, "{} in the pattern {} is not known", quote(what), quote(from_));
  }
  void copy(std::size_t count) {
    to_ += from_.substr(at_, count);
    at_ += count;
  }

  // ( (?: (?= (?! (?i: and no other.
  void open() {
    if (from_.substr(at_, 2) != "(?") return open("(");
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?i:"}) {
      if (from_.substr(at_, known.size()) == known) return open(known);
    }
    refuse(from_.substr(at_, 4));
  }
  void open(std::string_view group) {
    folds_.push_back(folds() || group == "(?i:");
    if (group != "(?:") letters_.clear();
    copy(group.size());
  }
  void close() {
    if (!folds_.empty()) folds_.pop_back();  // else PCRE2 says it
    copy(1);
  }

  // ---- Where case does not matter ----

  // Oniguruma then also takes one character for several: ß for ss, ﬁ for fi. PCRE2 does not. Of the 104 characters that
  // fold to more than one, those that fold to ASCII fold to these pairs, or begin with one (ffi, ffl); the others need
  // a letter beyond ASCII, in the pattern or in a class.
  bool folds() const { return !folds_.empty() && folds_.back(); }
  [[noreturn]] void refuse_folded(std::string_view what) const {
    fail_at(place_, "{}, where case does not matter, in the pattern {} is not known", quote(what), quote(from_));
  }
  void fold(char next) {
    if (!folds()) return;
    if (static_cast<unsigned char>(next) >= 0x80) {
      const auto end =
          std::find_if(from_.begin() + static_cast<std::ptrdiff_t>(at_) + 1, from_.end(), begins_character);
      refuse_folded(from_.substr(at_, static_cast<std::size_t>(end - from_.begin()) - at_));
    }
    if (std::isalpha(static_cast<unsigned char>(next))) {
      letters_ += static_cast<char>(std::tolower(static_cast<unsigned char>(next)));
      for (const std::string_view pair : {"ff", "fi", "fl", "ss", "st"}) {
        if (letters_.ends_with(pair)) refuse_folded(pair);
      }
    } else if (!std::isdigit(static_cast<unsigned char>(next)) &&
               std::string_view("{,}").find(next) == std::string_view::npos) {
      letters_.clear();  // s{1}s is ss to Oniguruma, and so is s(?:s)
    }
  }

  // [...]: ranges and properties, without a class in it.
  void bracket() {
    letters_.clear();
    copy(1);
    if (at_ < from_.size() && from_[at_] == '^') copy(1);
    const std::size_t first = at_;
    while (at_ < from_.size() && (from_[at_] != ']' || at_ == first)) {
      if (from_[at_] == '[' || from_.substr(at_, 2) == "&&") refuse(from_.substr(at_, 2));
      if (from_[at_] == '\\') {
        escape(true);
      } else {
        fold(from_[at_]);
        letters_.clear();  // one or the other
        copy(1);
      }
    }
    if (at_ == from_.size()) refuse("[ without ]");
    copy(1);
  }

  void escape(bool in_bracket) {
    const char letter = at_ + 1 < from_.size() ? from_[at_ + 1] : '\0';
    letters_.clear();
    if (letter == 's' || letter == 'S') {
      if (letter == 'S' && in_bracket) refuse("[..\\S..]");
      at_ += 2;
      to_ += in_bracket ? std::string(white_space) : fmt::format("[{}{}]", letter == 'S' ? "^" : "", white_space);
    } else if (letter == 'p' || letter == 'P') {
      property(letter == 'P', in_bracket);
    } else if (letter == 'r' || letter == 'n' || letter == 't' || ispunct(static_cast<unsigned char>(letter))) {
      copy(2);
    } else {
      refuse(from_.substr(at_, 2));
    }
  }

  void property(bool negated, bool in_bracket) {
    const std::size_t end = from_.find('}', at_);
    if (end == std::string_view::npos || from_.substr(at_ + 2, 1) != "{") refuse(from_.substr(at_, 4));
    const std::string_view name = from_.substr(at_ + 3, end - at_ - 3);
    const auto found = std::ranges::find(properties(), name, &Property::name);
    if (found == properties().end() || (negated && in_bracket)) refuse(from_.substr(at_, end + 1 - at_));
    if (folds()) refuse_folded(from_.substr(at_, end + 1 - at_));
    at_ = end + 1;
    std::string points(found->pcre2);
    for (const auto& ranges : found->more) {
      for (const CodePointRange& range : ranges) {
        points += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", std::uint32_t{range.first}, std::uint32_t{range.last});
      }
    }
    to_ += in_bracket ? points : fmt::format("[{}{}]", negated ? "^" : "", points);
  }

  const Place& place_;
  std::string_view from_;
  std::size_t at_ = 0;
  std::string to_;
  std::vector<bool> folds_;  // of each group that is open
  std::string letters_;      // without case, that stand in a row
};

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

// Collects parts of a text from its matches, in order.
class Parts {
 public:
  explicit Parts(std::string_view text) : size_(text.size()) {}
  void match(std::size_t begin, std::size_t end) {
    to(begin);
    parts_.push_back({begin, end, true});
    last_ = end;
  }
  std::vector<Part> take() {
    to(size_);
    return std::move(parts_);
  }

 private:
  void to(std::size_t begin) {
    if (last_ < begin) parts_.push_back({last_, begin, false});
  }
  std::size_t size_, last_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(const Place& place, std::string_view expression) {
  const std::string translated = Translation(place, expression).run();
  const auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE at = 0;
  code->code = pcre2_compile(bytes_of(translated), translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                             &error, &at, nullptr);
  if (!code->code) fail_at(place, "the pattern {} can't be read: {}", quote(expression), message_of(error));
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without it, matching interprets
  code_ = code;
}

Pattern Pattern::literal(const Place& place, std::string_view text) {
  if (text.empty()) fail_at(place, "a pattern is empty");
  Pattern pattern;
  pattern.literal_ = text;
  return pattern;
}

bool Pattern::may_match_empty() const {
  std::uint32_t may = 0;
  if (code_) pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &may);
  return may != 0;
}

std::vector<Part> Pattern::parts(std::string_view text) const {
  if (text.empty()) return {};  // `tokenizers` asks no pattern about it
  Parts parts(text);
  if (!literal_.empty()) {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, at)) {
      parts.match(at, at + literal_.size());
      at += literal_.size();
    }
    return parts.take();
  }
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create_from_pattern(code_->code, nullptr));
  if (!data) throw std::bad_alloc();
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
  std::optional<std::size_t> last;  // where the last match ended: an empty one right there doesn't count
  for (std::size_t at = 0; at <= text.size();) {
    const int count =
        pcre2_match(code_->code, bytes_of(text), text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0)
      fail(ErrorCode::bad_value, "Tokenizer::encode", "a pattern of the tokenizer fails on the text: {}",
           message_of(count));
    if (found[0] == found[1] && last == found[1]) {
      at = found[1] + 1;
      while (at < text.size() && !begins_character(text[at])) ++at;
      continue;
    }
    parts.match(found[0], found[1]);
    last = at = found[1];
  }
  return parts.take();
}

std::vector<Part> arrange(Behavior behavior, const std::vector<Part>& parts) {
  std::vector<Part> out;
  bool previous = false;
  const auto joined = [&](const Part& part) {
    switch (behavior) {
      case Behavior::merged_with_previous:
      case Behavior::merged_with_next:
        return part.match && !previous;
      case Behavior::contiguous:
        return part.match == previous;
      default:
        return false;
    }
  };
  const auto add = [&](const Part& part) {
    if (behavior == Behavior::removed && part.match) return;
    if (!out.empty() && joined(part)) {
      out.back().begin = std::min(out.back().begin, part.begin), out.back().end = std::max(out.back().end, part.end);
    } else {
      out.push_back(part);
    }
    previous = part.match;
  };
  if (behavior == Behavior::merged_with_next) {
    std::for_each(parts.rbegin(), parts.rend(), add);
    std::ranges::reverse(out);
  } else {
    std::ranges::for_each(parts, add);
  }
  return out;
}

}  // namespace attend::inline v1::tokenizer
