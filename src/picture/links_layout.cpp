// Where tokens stand, and the lines between them.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/message.h"
#include "picture/colour_bar.h"
#include "picture/layout.h"
#include "picture/panel.h"
#include "picture/sheet.h"
#include "picture/text.h"

namespace attend::inline v1 {

namespace {

constexpr std::size_t most_lines = 160;        // more are hair
constexpr std::size_t most_linked_rows = 120;  // of tokens; of more, those that have a line
constexpr std::size_t roomy_rows = 40;
constexpr double bar_most = 220;
constexpr Colour line_colour{0x23, 0x27, 0x70};

std::uint8_t over_white(std::uint8_t part, double place) {
  return static_cast<std::uint8_t>(std::lround(255 + (part - 255) * place));
}

// What a line of that opacity looks like on white.
Colour faded(double place) {
  return {over_white(line_colour.red, place), over_white(line_colour.green, place),
          over_white(line_colour.blue, place)};
}

struct Link {
  std::int64_t query = 0;
  std::int64_t key = 0;
  double weight = 0;
};

// The tokens that are shown of the queries, or of the keys.
struct Column {
  std::u32string name;
  std::map<std::int64_t, std::u32string> tokens;  // by their indices
  double width = 0;
};

class LinksComposer {
 public:
  LinksComposer(const TokenLinks& links, const Font& font, const char* function)
      : font_(font), sheet_(out_, font), place_{function} {
    out_.kind = U"Links";
    out_.title = one_line(links.title, place_.in("title"));
    out_.caption = one_line(links.caption, place_.in("caption"));
    check(links);
    are_shares_ = links.are_shares;
    read(links);
    arrange();
    paint();
  }
  Layout take() { return std::move(out_); }

 private:
  void check(const TokenLinks& links) const {
    const View& keys = links.top_keys;
    const View& weights = links.top_weights;
    if (keys.dtype() != DType::i64) fail(ErrorCode::bad_dtype, place_, "top_keys are {}, expected i64", keys.dtype());
    if (!is_floating(weights.dtype()))
      fail(ErrorCode::bad_dtype, place_, "top_weights are {}, expected a floating point type", weights.dtype());
    if (keys.rank() != 2 || keys.count() == 0 || !(keys.shape() == weights.shape())) {
      fail(ErrorCode::bad_shape, place_, "expected top_keys and top_weights [Tq,k], got {} and {}", keys.shape(),
           weights.shape());
    }
    if (links.scale == PictureScale::diverging)
      fail(ErrorCode::bad_value, place_, "scale is diverging, and a line has but one colour");
    if (!links.queries.empty() && std::ssize(links.queries) != keys.size(0))
      fail(ErrorCode::bad_shape, place_, "{} query tokens for {} queries", links.queries.size(), keys.size(0));
  }

  void read(const TokenLinks& links) {
    const Tensor keys = links.top_keys.clone();
    const Tensor weights = links.top_weights.to(DType::f64);
    const std::int64_t top = keys.size(1);
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < keys.count(); ++i) {
      const std::int64_t key = keys.data<std::int64_t>()[i];
      if (key < -1 || (!links.keys.empty() && key >= std::ssize(links.keys))) {
        fail(ErrorCode::bad_value, place_, "top_keys have {} at [{},{}], expected -1 or one of {} keys", key, i / top,
             i % top, links.keys.empty() ? "the" : fmt::format("{}", links.keys.size()));
      }
      if (key < 0) continue;
      const double weight = weights.data<double>()[i];
      if (weight < 0 && links.scale != PictureScale::linear) {
        fail(ErrorCode::bad_value, place_, "top_weights have {} at [{},{}], expected 0 or more on the scale {}", weight,
             i / top, i % top, name_of(links.scale));
      }
      last = std::max(last, key);
      links_.push_back({links.first_query + i / top, key, weight});
    }
    bar_ = ColourBar(read_scale(links));
    bar_.colour = faded;
    const std::int64_t count = links.keys.empty() ? last + 1 : std::ssize(links.keys);
    choose(keys.size(0), top, std::max(links.first_query + keys.size(0), count));
    if (rows_.size() > roomy_rows) token_size_ = 11, pitch_ = 15, between_ = 360, line_width_ = 1;
    queries_ =
        read_column(links.row_axis, links.queries, {links.first_query, links.first_query + keys.size(0)}, "queries");
    keys_ = read_column(links.column_axis, links.keys, {0, count}, "keys");
  }

  // The strongest lines, falling, and the indices of the rows on which tokens stand.
  void choose(std::int64_t queries, std::int64_t top, std::int64_t count) {
    const std::vector<Link> all = links_;
    // Stable, so that equal weights keep their order.
    std::ranges::stable_sort(links_, [&](const Link& a, const Link& b) { return opacity(a) > opacity(b); });
    links_.resize(std::min(links_.size(), most_lines));
    in_part_ = count > static_cast<std::int64_t>(most_linked_rows);
    std::set<std::int64_t> rows;
    if (!in_part_)
      for (std::int64_t i = 0; i < count; ++i) rows.insert(i);
    for (std::size_t n = 0; in_part_ && n < links_.size(); ++n) {
      rows.insert({links_[n].query, links_[n].key});
      if (rows.size() > most_linked_rows) links_.resize(n);
    }
    if (in_part_) rows.clear();
    for (const Link& link : links_) rows.insert({link.query, link.key});
    rows_.assign(rows.begin(), rows.end());
    note_ = note_of(all, queries, top);
  }

  Column read_column(const std::string& name, const std::vector<std::string>& tokens, const Range& indices,
                     const char* which) const {
    Column column{one_line(name, place_.in(fmt::format("{} axis", which))), {}, 0};
    const auto touched = [&](std::int64_t index) {
      return std::ranges::any_of(links_, [&](const Link& x) { return (which[0] == 'q' ? x.query : x.key) == index; });
    };
    for (const std::int64_t index : rows_) {
      if (index < indices.begin || index >= indices.end || (in_part_ && !touched(index))) continue;
      const auto place = static_cast<std::size_t>(index - indices.begin);
      std::u32string token = tokens.empty() || in_part_ ? ascii(fmt::format("{} ", index)) : U"";
      if (!tokens.empty()) {
        const std::u32string word = one_line(tokens[place], place_.in(fmt::format("{}[{}]", which, place)));
        token += word.substr(std::min(word.find_first_not_of(U' '), word.size()));
      }
      // Blanks at the ends would push a column's words out of line.
      token.erase(token.find_last_not_of(U' ') + 1);
      token = cut(token, font_, token_size_, max_row_label);
      column.width = std::max(column.width, font_.width(token, token_size_));
      column.tokens.emplace(index, std::move(token));
    }
    column.name = cut(column.name, font_, label_size, max_row_label);
    column.width = std::ceil(std::max(column.width, font_.width(column.name, label_size)));
    return column;
  }

  // Of the weights that are drawn: what stands beside -1 is no weight.
  ColourScale read_scale(const TokenLinks& links) const {
    std::vector<double> weights = {0};
    for (const Link& link : links_) weights.push_back(link.weight);
    HeatMap map;
    map.values = View(weights.data(), DType::f64, {1, std::ssize(weights)});
    map.low = links.low;
    map.high = links.high;
    map.scale = links.scale;
    check_heat_map(map, place_.in("top_weights"));
    return colour_scale(std::span(&map, 1), place_.function.c_str());
  }

  std::u32string note_of(const std::vector<Link>& all, std::int64_t queries, std::int64_t top) const {
    std::set<std::int64_t> seeing;
    for (const Link& link : all) seeing.insert(link.query);
    double sum = 0;
    for (const Link& link : links_) sum += link.weight;
    const double share = sum / static_cast<double>(std::max<std::size_t>(1, seeing.size()));
    // Sums beyond 1 are of something else than one head's weights.
    const bool known = are_shares_ && share > 0 && share < 1.0005;
    const std::string percent = fmt::format("{:.0f} %", 100 * share);
    if (links_.size() < all.size()) {
      return ascii(
          fmt::format("The {} strongest of {} lines{}.", links_.size(), all.size(),
                      known ? fmt::format(": these show {} of the attention of {} queries", percent, queries) : ""));
    }
    if (!are_shares_ && top == 1) return {};
    const std::string which = top == 1 ? "The largest weight" : fmt::format("The {} largest weights", top);
    return ascii(fmt::format("{} of each query{}.", which,
                             known ? fmt::format(": {} of its attention, on average", percent) : ""));
  }

  void arrange() {
    // Where indices are left out, there is a gap.
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const bool follows = r == 0 || rows_[r] == rows_[r - 1] + 1;
      middles_.push_back(r == 0 ? pitch_ / 2 : middles_.back() + pitch_ + (follows ? 0 : pitch_ / 2));
    }
    const double height = middles_.empty() ? pitch_ : middles_.back() + pitch_ / 2;
    const bool named = !queries_.name.empty() || !keys_.name.empty();
    head_ = named ? label_size + 12 : 0;
    bar_height_ = std::clamp(height, 100.0, bar_most);
    const double tokens = queries_.width + label_gap + between_ + label_gap + keys_.width;
    content_ = sheet_.arrange(tokens + bar_gap + bar_.width(font_), head_ + std::max(height, bar_.height(bar_height_)),
                              sentences({note_, scale_note(bar_.scale)}));
    out_.description = ascii(fmt::format("{} links between {} ", links_.size(), queries_.tokens.size())) +
                       queries_.name + ascii(fmt::format(" and {} ", keys_.tokens.size())) + keys_.name +
                       ascii(fmt::format(", the denser the larger the weight, from {} to {}.",
                                         short_number(bar_.scale.low, 4), short_number(bar_.scale.high, 4)));
  }

  double middle_of(std::int64_t index) const {
    const auto row = std::ranges::lower_bound(rows_, index) - rows_.begin();
    return content_.y + head_ + middles_[static_cast<std::size_t>(row)];
  }

  void paint_column(const Column& column, double x, Anchor anchor) {
    sheet_.write(x, content_.y + label_size * 0.8, label_size, anchor, soft_ink, column.name);
    for (const auto& [index, token] : column.tokens)
      sheet_.write(x, middle_of(index) + half_height(token_size_), token_size_, anchor, ink, token);
  }

  void paint() {
    sheet_.paint_title();
    const double left = content_.x + queries_.width + label_gap;
    // Dense lines over thin ones.
    for (auto link = links_.rbegin(); link != links_.rend(); ++link) {
      const Colour colour = std::isnan(link->weight) ? nan_colour : line_colour;
      Stroke stroke{
          left, middle_of(link->query), left + between_, middle_of(link->key), line_width_, colour, opacity(*link), {}};
      stroke.text = queries_.tokens.at(link->query) + U" → " + keys_.tokens.at(link->key) + U": " +
                    ascii(short_number(link->weight, 4));
      if (stroke.opacity > 0) out_.strokes.push_back(std::move(stroke));
    }
    paint_column(queries_, left - label_gap, Anchor::end);
    paint_column(keys_, left + between_ + label_gap, Anchor::start);
    bar_.paint_upright(sheet_, left + between_ + label_gap + keys_.width + bar_gap, content_.y + head_, bar_height_);
    sheet_.paint_note();
  }

  // A NaN hides nothing, and is hidden by nothing.
  double opacity(const Link& link) const { return std::isnan(link.weight) ? 1 : bar_.scale.place(link.weight); }

  const Font& font_;
  Layout out_;
  Sheet sheet_;
  Place place_;
  ColourBar bar_;
  std::vector<Link> links_;
  std::vector<std::int64_t> rows_;  // the indices that stand on them, rising
  std::vector<double> middles_;     // of the rows, from the first one's top
  bool in_part_ = false;            // rows are those that have a line
  double pitch_ = 22, token_size_ = 14, between_ = 200, line_width_ = 2;
  Column queries_, keys_;
  std::u32string note_;
  bool are_shares_ = true;
  double head_ = 0;  // above the tokens
  double bar_height_ = 0;
  Rect content_;
};

}  // namespace

Layout lay_out(const TokenLinks& links, const Font& font, const char* function) {
  return LinksComposer(links, font, function).take();
}

}  // namespace attend::inline v1
