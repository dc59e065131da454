// Where the tokens of a strip stand.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "picture/colour_bar.h"
#include "picture/layout.h"
#include "picture/sheet.h"
#include "picture/strip.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr double line_width = 560;  // of tokens: on a telephone of 390 pixels their text is 9 high
constexpr double token_size = 14;
constexpr double token_height = 24;
constexpr double line_height = 29;
constexpr double padding = 5;
constexpr double token_gap = 2;
constexpr double least_width = 12;  // of a token that shows nothing
constexpr double most_width = 260;
constexpr double bar_width = 200;
constexpr double head = ColourBar::level_height + 14;  // the scale stands above: 2,000 tokens are a long way down
constexpr std::size_t most_pointed = 4096;             // tokens that tell their value to a pointer

struct Token {
  std::size_t line = 0;
  double x = 0;
  double width = 0;
  double before = 0;  // the blanks that it begins with
  std::u32string text;
};

// Blanks at the ends are room, not text: XML drops them.
Token measured(const std::u32string& whole, const Font& font) {
  Token token;
  const std::u32string text = cut(whole, font, token_size, most_width - 2 * padding);
  const std::size_t first = std::min(text.find_first_not_of(U' '), text.size());
  const std::size_t last = text.find_last_not_of(U' ');
  token.before = font.width(text.substr(0, first), token_size);
  if (first < text.size()) token.text = text.substr(first, last - first + 1);
  token.width = std::max(least_width, std::ceil(font.width(text, token_size)) + 2 * padding);
  return token;
}

class StripComposer {
 public:
  StripComposer(const TokenStrip& strip, const Font& font, const char* function)
      : strip_(read_strip(strip, function)),
        has_scale_(strip.has_scale),
        has_indices_(strip.has_indices),
        head_(has_scale_ ? head : 0),
        font_(font),
        sheet_(out_, font),
        bar_(strip_.scale) {
    out_.kind = U"Tokens";
    out_.title = strip_.title;
    out_.caption = one_line(strip.caption, {function, "caption"});
    if (std::ranges::any_of(strip_.values, Grid::hidden)) bar_.sign = U"no value";
    break_lines();
    arrange();
    paint();
  }
  Layout take() { return std::move(out_); }

 private:
  void break_lines() {
    double x = 0;
    std::size_t line = 0;
    for (const std::u32string& text : strip_.tokens) {
      Token token = measured(text, font_);
      if (x > 0 && x + token.width > line_width) {
        ++line;
        x = 0;
      }
      token.x = x;
      token.line = line;
      x += token.width + token_gap;
      width_ = std::max(width_, x - token_gap);
      tokens_.push_back(std::move(token));
    }
    lines_ = line + 1;
  }

  void arrange() {
    name_ = cut(strip_.name, font_, caption_size, 160);
    if (lines_ > 1 && has_indices_)
      gutter_ = std::ceil(font_.width(ascii(fmt::format("{}", tokens_.size())), note_size)) + 10;
    const double name = name_.empty() ? 0 : std::ceil(font_.width(name_, caption_size)) + 12;
    const double sign = bar_.sign.empty() ? 0 : 24 + 20 + std::ceil(font_.width(bar_.sign, note_size));
    bar_x_ = std::max(name, font_.width(bar_.ticks[0].text, note_size) / 2);
    const double bar = has_scale_ ? bar_x_ + bar_width + std::max(sign, 14.0) : 0;
    const double width = std::max({gutter_ + width_, bar, has_indices_ ? 0 : line_width});
    const double lines = static_cast<double>(lines_) * line_height - (line_height - token_height);
    content_ = sheet_.arrange(width, head_ + lines, has_scale_ ? scale_note(bar_.scale) : std::u32string());
    out_.description =
        ascii(fmt::format("{} tokens, each on the colour of its value", tokens_.size())) +
        (strip_.name.empty() ? U"" : U" (" + strip_.name + U")") +
        ascii(fmt::format(", from {} to {}.", short_number(bar_.scale.low, 4), short_number(bar_.scale.high, 4))) +
        (bar_.sign.empty() ? U"" : U" A token without a value is hatched.");
  }

  void paint() {
    sheet_.paint_title();
    const bool pointed = tokens_.size() <= most_pointed;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      const double value = strip_.values[i];
      const double y = content_.y + head_ + static_cast<double>(token.line) * line_height;
      const double baseline = y + token_height / 2 + half_height(token_size);
      if (gutter_ > 0 && (i == 0 || tokens_[i - 1].line < token.line)) {
        sheet_.write(content_.x + gutter_ - 10, baseline, note_size, Anchor::end, soft_ink,
                     ascii(fmt::format("{}", i)));
      }
      Cell cell{{content_.x + gutter_ + token.x, y, token.width, token_height}, hidden_colour, false, {}};
      cell.hatched = Grid::hidden(value);
      if (!cell.hatched) cell.colour = bar_.scale.at(value);
      if (pointed) {
        const std::u32string number = cell.hatched ? U"no value" : ascii(short_number(value, 4));
        cell.text = ascii(fmt::format("{} ", i)) + strip_.tokens[i] + U": " + number;
      }
      sheet_.write(cell.area.x + padding + token.before, baseline, token_size, Anchor::start,
                   cell.hatched ? ink : text_colour(cell.colour), token.text);
      out_.cells.push_back(std::move(cell));
    }
    if (has_scale_) paint_bar();
    sheet_.paint_note();
  }

  void paint_bar() {
    sheet_.write(content_.x, content_.y + 6 + half_height(caption_size), caption_size, Anchor::start, soft_ink, name_);
    bar_.paint_level(sheet_, content_.x + bar_x_, content_.y, bar_width);
  }

  ReadStrip strip_;
  bool has_scale_, has_indices_;
  double head_;
  const Font& font_;
  Layout out_;
  Sheet sheet_;
  ColourBar bar_;
  std::vector<Token> tokens_;
  std::size_t lines_ = 1;
  std::u32string name_;
  double width_ = 0;   // of the widest line
  double gutter_ = 0;  // left of the lines: the index of the first token
  double bar_x_ = 0;   // from the content's left
  Rect content_;
};

}  // namespace

Layout lay_out(const TokenStrip& strip, const Font& font, const char* function) {
  return StripComposer(strip, font, function).take();
}

}  // namespace attend::inline v1
