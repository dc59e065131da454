#include "tokenizer/decode.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/read.h"

namespace attend::inline v1::tokenizer {

namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

std::u32string points_of(std::string_view text) {
  return decode_utf8(text, {"Tokenizer::decode", "a token"});
}

// How many bytes at the beginning are a character, or as much of one as is there (Unicode 15, table 3-7).
std::pair<std::size_t, bool> first_character(std::string_view bytes) {
  const auto byte = [&](std::size_t n) { return n < bytes.size() ? static_cast<unsigned char>(bytes[n]) : 0; };
  const int first = byte(0);
  if (first < 0x80) return {1, true};
  const std::size_t size = first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
  if (size == 1) return {1, false};
  const int low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const int high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return {1, false};
  for (std::size_t n = 2; n < size; ++n) {
    if ((byte(n) & 0xc0) != 0x80) return {n, false};
  }
  return {size, true};
}

std::string with_replacements(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const auto [size, whole] = first_character(bytes);
    text += whole ? bytes.substr(0, size) : replacement;
    bytes.remove_prefix(size);
  }
  return text;
}

void byte_level(std::vector<std::string>& parts, const Growth&) {
  std::string bytes;
  for (const std::string& part : parts) {
    std::string of;
    for (const char32_t point : points_of(part)) {
      const auto byte = byte_of(point);
      if (!byte) {
        of = part;  // a token that was added: as it is
        break;
      }
      of += static_cast<char>(*byte);
    }
    bytes += of;
  }
  parts.assign(1, with_replacements(bytes));
}

std::optional<char> fallback_byte(std::string_view token) {
  constexpr std::string_view digits = "0123456789abcdef";
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const auto digit = [&](char of) {
    return digits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(of))));
  };
  // The number may have a sign, as Rust reads it.
  const std::size_t high = token[3] == '+' ? 0 : digit(token[3]), low = digit(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

void byte_fallback(std::vector<std::string>& parts, const Growth&) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (is_utf8(bytes)) {
      out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(replacement));
    }
    bytes.clear();
  };
  for (std::string& part : parts) {
    if (const auto byte = fallback_byte(part)) {
      bytes += *byte;
    } else {
      flush();
      out.push_back(std::move(part));
    }
  }
  flush();
  parts = std::move(out);
}

Decoder read_wordpiece_decoder(const Member& from) {
  from.only({"type", "prefix", "cleanup"});
  return [prefix = from["prefix"].text(), cleans = from["cleanup"].truth()](std::vector<std::string>& parts,
                                                                            const Growth&) {
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const bool continues = parts[n].starts_with(prefix);
      if (n > 0) {
        std::string part(continues ? "" : " ");
        part += std::string_view(parts[n]).substr(continues ? prefix.size() : 0);
        parts[n] = std::move(part);
      }
      if (cleans) clean_up(parts[n], true);
    }
  };
}

Decoder read_metaspace_decoder(const Member& from) {
  from.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const bool drops =
      from.has("prepend_scheme") ? from["prepend_scheme"].text() != "never" : from["add_prefix_space"].truth();
  // Without it, it would stand everywhere, and no end be reached.
  const std::string mark = from["replacement"].text();
  if (count_characters(mark) != 1) from["replacement"].refuse("one character");
  return [mark, drops](std::vector<std::string>& parts, const Growth&) {
    for (std::size_t n = 0; n < parts.size(); ++n) replace_all(parts[n], mark, n == 0 && drops ? "" : " ");
  };
}

Decoder read_strip(const Member& from) {
  from.only({"type", "content", "start", "stop"});
  const std::string content = from["content"].text();
  if (count_characters(content) != 1) from["content"].refuse("one character");
  return [content, start = from["start"].whole(0), stop = from["stop"].whole(0)](std::vector<std::string>& parts,
                                                                                 const Growth&) {
    for (std::string& part : parts) {
      std::string_view left = part;
      for (std::int64_t n = 0; n < start && left.starts_with(content); ++n) left.remove_prefix(content.size());
      for (std::int64_t n = 0; n < stop && left.ends_with(content); ++n) left.remove_suffix(content.size());
      part = std::string(left);
    }
  };
}

Decoder read_replace_decoder(const Member& from) {
  from.only({"type", "pattern", "content"});
  return [pattern = read_pattern(from["pattern"]), with = from["content"].text()](std::vector<std::string>& parts,
                                                                                  const Growth& growth) {
    std::uint64_t made = 0;
    for (std::string& part : parts) {
      std::string out;
      for (const Part& each : pattern.parts(part)) {
        growth.check(made + out.size() + with.size());
        out += each.match ? with : part.substr(each.begin, each.end - each.begin);
      }
      made += out.size();
      part = std::move(out);
    }
  };
}

std::string text_of(const Member& from) {
  std::string text = from.text();
  if (text.empty()) from.refuse("text");
  return text;
}

// The tokens of a model that gives one for each moment of a sound.
Decoder read_ctc(const Member& from) {
  from.only({"type", "pad_token", "word_delimiter_token", "cleanup"});
  return [pad = text_of(from["pad_token"]), delimiter = text_of(from["word_delimiter_token"]),
          cleans = from["cleanup"].truth()](std::vector<std::string>& parts, const Growth&) {
    parts.erase(std::ranges::unique(parts).begin(), parts.end());
    for (std::string& part : parts) {
      replace_all(part, pad, "");
      if (!cleans) continue;
      clean_up(part, true);
      replace_all(part, delimiter, " ");
    }
    std::erase(parts, "");
  };
}

Decoder read_bpe_decoder(const Member& from) {
  from.only({"type", "suffix"});
  return [suffix = text_of(from["suffix"])](std::vector<std::string>& parts, const Growth&) {
    for (std::size_t n = 0; n < parts.size(); ++n) replace_all(parts[n], suffix, n + 1 < parts.size() ? " " : "");
  };
}

Decoder read_decoder(const Member& from, const std::string& type) {
  if (type == "ByteLevel") {
    from.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return byte_level;
  }
  if (type == "WordPiece") return read_wordpiece_decoder(from);
  if (type == "Metaspace") return read_metaspace_decoder(from);
  if (type == "Strip") return read_strip(from);
  if (type == "Replace") return read_replace_decoder(from);
  if (type == "CTC") return read_ctc(from);
  if (type == "BPEDecoder") return read_bpe_decoder(from);
  if (type == "ByteFallback") {
    from.only({"type"});
    return byte_fallback;
  }
  if (type == "Fuse") {
    from.only({"type"});
    return [](std::vector<std::string>& parts, const Growth&) {
      std::string all;
      for (const std::string& part : parts) all += part;
      parts = {std::move(all)};
    };
  }
  fail_at(from.place(), "the decoder {} is not known", quote(type));
}

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t last = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, last)) {
    out.append(text, last, at - last);
    out += to;
    last = at + from.size();
  }
  if (last > 0) text = out.append(text, last);
}

void clean_up(std::string& text, bool do_not) {
  constexpr std::pair<const char*, const char*> changes[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) {
    if (do_not || std::string_view(from) != " do not") replace_all(text, from, to);
  }
}

std::optional<std::vector<Decoder>> read_decoders(const Member& from) {
  if (from.value().is_null()) return std::nullopt;
  std::vector<Decoder> steps;
  const auto read = [&](const Member& step, const std::string& type) { steps.push_back(read_decoder(step, type)); };
  for_each_step(from, "decoders", read);
  return steps;
}

}  // namespace attend::inline v1::tokenizer
