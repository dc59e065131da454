// Where tokens stand, and the lines between them.
#include <algorithm>
#include <cmath>

#include "core/message.h"
#include "picture/colour_bar.h"
#include "picture/layout.h"
#include "picture/panel.h"
#include "picture/sheet.h"
#include "picture/text.h"

namespace attend {

namespace {

constexpr double token_size = 14;
constexpr double pitch = 22;     // from one token to the next
constexpr double between = 200;  // the columns of tokens
constexpr double line_width = 2;
constexpr double bar_most = 220;
constexpr std::size_t most_pointed = 4096;  // lines that tell their weight to a pointer
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

struct Column {
  std::u32string name;
  std::vector<std::u32string> tokens;
  double width = 0;
};

class LinksComposer {
 public:
  LinksComposer(const TokenLinks& links, const Font& font, const char* function)
      : font_(font), sheet_(out_, font), place_{function} {
    out_.kind = U"Links";
    out_.title = one_line(links.title, place_.in("title"));
    check(links);
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
      links_.push_back({i / top, key, weight});
    }
    queries_ = read_column(links.row_axis, links.queries, keys.size(0), "queries");
    keys_ = read_column(links.column_axis, links.keys, links.keys.empty() ? last + 1 : std::ssize(links.keys), "keys");
    bar_ = ColourBar(read_scale(links));
    bar_.colour = faded;
    note_ = note_of(keys.size(0), top);
  }

  Column read_column(const std::string& name, const std::vector<std::string>& tokens, std::int64_t count,
                     const char* which) const {
    Column column{one_line(name, place_.in(fmt::format("{} axis", which))), {}, 0};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::u32string token =
          tokens.empty() ? ascii(fmt::format("{}", i))
                         : one_line(tokens[static_cast<std::size_t>(i)], place_.in(fmt::format("{}[{}]", which, i)));
      column.tokens.push_back(cut(token, font_, token_size, max_row_label));
      column.width = std::max(column.width, font_.width(column.tokens.back(), token_size));
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

  std::u32string note_of(std::int64_t queries, std::int64_t top) const {
    std::vector<double> drawn(static_cast<std::size_t>(queries), 0);
    std::vector<bool> sees(drawn.size(), false);
    for (const Link& link : links_) {
      drawn[static_cast<std::size_t>(link.query)] += link.weight;
      sees[static_cast<std::size_t>(link.query)] = true;
    }
    double sum = 0;
    for (const double weight : drawn) sum += weight;
    const double share = sum / static_cast<double>(std::max<std::int64_t>(1, std::ranges::count(sees, true)));
    const std::string which = top == 1 ? "The largest weight" : fmt::format("The {} largest weights", top);
    // Sums beyond 1 are of something else than one head's weights.
    const bool known = share > 0 && share < 1.0005;
    return ascii(fmt::format("{} of each query{}.", which,
                             known ? fmt::format(": {:.0f} % of its attention, on average", 100 * share) : ""));
  }

  void arrange() {
    const auto rows = static_cast<double>(std::max(queries_.tokens.size(), keys_.tokens.size()));
    const bool named = !queries_.name.empty() || !keys_.name.empty();
    head_ = named ? label_size + 12 : 0;
    bar_height_ = std::clamp(rows * pitch, 100.0, bar_most);
    const double tokens = queries_.width + label_gap + between + label_gap + keys_.width;
    content_ =
        sheet_.arrange(tokens + bar_gap + bar_.width(font_), head_ + std::max(rows * pitch, bar_.height(bar_height_)),
                       sentences({note_, scale_note(bar_.scale)}));
    out_.description = ascii(fmt::format("{} links between {} ", links_.size(), queries_.tokens.size())) +
                       queries_.name + ascii(fmt::format(" and {} ", keys_.tokens.size())) + keys_.name +
                       ascii(fmt::format(", the denser the larger the weight, from {} to {}.",
                                         short_number(bar_.scale.low, 4), short_number(bar_.scale.high, 4)));
  }

  double middle_of(std::int64_t token) const { return content_.y + head_ + (static_cast<double>(token) + 0.5) * pitch; }

  void paint_column(const Column& column, double x, Anchor anchor) {
    sheet_.write(x, content_.y + label_size * 0.8, label_size, anchor, soft_ink, column.name);
    for (std::size_t i = 0; i < column.tokens.size(); ++i) {
      sheet_.write(x, middle_of(static_cast<std::int64_t>(i)) + half_height(token_size), token_size, anchor, ink,
                   column.tokens[i]);
    }
  }

  void paint() {
    sheet_.paint_title();
    const double left = content_.x + queries_.width + label_gap;
    // Dense lines over thin ones: stable, so that equal weights keep their order.
    std::ranges::stable_sort(links_, [&](const Link& a, const Link& b) { return opacity(a) < opacity(b); });
    const bool pointed = links_.size() <= most_pointed;
    for (const Link& link : links_) {
      const Colour colour = std::isnan(link.weight) ? nan_colour : line_colour;
      Stroke stroke{left, middle_of(link.query), left + between, middle_of(link.key), line_width, colour, opacity(link),
                    {}};
      if (pointed) {
        stroke.text = queries_.tokens[static_cast<std::size_t>(link.query)] + U" → " +
                      keys_.tokens[static_cast<std::size_t>(link.key)] + U": " + ascii(short_number(link.weight, 4));
      }
      if (stroke.opacity > 0) out_.strokes.push_back(std::move(stroke));
    }
    paint_column(queries_, left - label_gap, Anchor::end);
    paint_column(keys_, left + between + label_gap, Anchor::start);
    bar_.paint_upright(sheet_, left + between + label_gap + keys_.width + bar_gap, content_.y + head_, bar_height_);
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
  Column queries_, keys_;
  std::u32string note_;
  double head_ = 0;  // above the tokens
  double bar_height_ = 0;
  Rect content_;
};

}  // namespace

Layout lay_out(const TokenLinks& links, const Font& font, const char* function) {
  return LinksComposer(links, font, function).take();
}

}  // namespace attend
