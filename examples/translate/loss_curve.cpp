#include "loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "attend/error.h"

namespace translate {
namespace {

constexpr double width = 760, height = 420;
constexpr double left = 64, right = 24, top = 48, bottom = 52;  // the margins around the axes
constexpr const char* train_colour = "#1f5fa8";
constexpr const char* valid_colour = "#d1571b";

struct Point {
  double step, loss;
};

// Steps between ticks: 1, 2 or 5 times a power of ten, at most `most` of them.
double tick_distance(double range, double most) {
  const double least = range / most, power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

// From data to the picture.
struct Axes {
  double last_step, highest;
  double x(double step) const { return left + (width - left - right) * step / last_step; }
  double y(double loss) const { return height - bottom - (height - top - bottom) * std::min(loss / highest, 1.0); }
};

// Means of as many neighbours as make some 300 points of all: one batch's loss says little.
std::vector<Point> averaged(std::span<const double> losses) {
  const std::size_t each = std::max<std::size_t>(1, losses.size() / 300);
  std::vector<Point> points;
  for (std::size_t first = 0; first < losses.size(); first += each) {
    const std::size_t count = std::min(each, losses.size() - first);
    double sum = 0;
    for (const double loss : losses.subspan(first, count)) sum += loss;
    points.push_back(
        {static_cast<double>(first) + static_cast<double>(count + 1) / 2, sum / static_cast<double>(count)});
  }
  return points;
}

void draw_axes(std::string& svg, const Axes& axes) {
  auto out = std::back_inserter(svg);
  const double each_loss = tick_distance(axes.highest, 8), each_step = tick_distance(axes.last_step, 8);
  for (double loss = 0; loss <= axes.highest * 1.0001; loss += each_loss) {
    fmt::format_to(out, "<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", left, width - right,
                   axes.y(loss), axes.y(loss), loss == 0 ? "#666" : "#e4e4e4");
    fmt::format_to(out, "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n", left - 8, axes.y(loss) + 4,
                   loss);
  }
  for (double step = 0; step <= axes.last_step * 1.0001; step += each_step) {
    fmt::format_to(out, "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#666\"/>\n", axes.x(step),
                   height - bottom, height - bottom + 5);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", axes.x(step),
                   height - bottom + 20, step);
  }
  fmt::format_to(out, "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n", (left + width - right) / 2,
                 height - 12);
  fmt::format_to(
      out, "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">loss, nats per token</text>\n",
      (top + height - bottom) / 2);
}

void draw_line(std::string& svg, const Axes& axes, const std::vector<Point>& points, const char* colour, bool dots) {
  auto out = std::back_inserter(svg);
  svg += "<polyline points=\"";
  for (const Point& point : points) fmt::format_to(out, "{:.1f},{:.1f} ", axes.x(point.step), axes.y(point.loss));
  fmt::format_to(out, "\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n", colour);
  if (!dots) return;
  for (const Point& point : points)
    fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"/>\n", axes.x(point.step),
                   axes.y(point.loss), colour);
}

void draw_legend(std::string& svg, double y, const char* colour, const std::string& text) {
  fmt::format_to(std::back_inserter(svg),
                 "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"2.4\"/>\n"
                 "<text x=\"{4}\" y=\"{5}\">{6}</text>\n",
                 width - right - 380, width - right - 356, y, colour, width - right - 348, y + 4, text);
}

}  // namespace

std::string svg_loss_curve(std::span<const double> train, std::span<const double> valid, std::int64_t validate_every) {
  if (train.empty()) throw attend::Error(attend::ErrorCode::bad_value, "", "there are no losses yet");
  std::vector<Point> held_out;
  for (std::size_t i = 0; i < valid.size(); ++i)
    held_out.push_back({static_cast<double>(i + 1) * static_cast<double>(validate_every), valid[i]});
  const std::vector<Point> learned = averaged(train);
  double highest = 0;
  for (const auto* points : {&learned, &std::as_const(held_out)})
    for (const Point& point : *points) highest = std::max(highest, point.loss);
  const double tick = tick_distance(std::max(highest, 1e-3), 8);
  const Axes axes{static_cast<double>(train.size()), std::ceil(highest / tick) * tick};

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" fill=\"#222\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"28\" font-size=\"16\">English to Italian: loss while learning</text>\n",
      width, height, left);
  draw_axes(svg, axes);
  draw_line(svg, axes, learned, train_colour, false);
  draw_line(svg, axes, held_out, valid_colour, true);
  draw_legend(svg, top + 18, train_colour,
              fmt::format("messages learned from (with dropout): {:.2f} at the end", learned.back().loss));
  if (!held_out.empty())
    draw_legend(svg, top + 38, valid_colour,
                fmt::format("messages never seen: {:.2f} at the end", held_out.back().loss));
  return svg + "</svg>\n";
}

}  // namespace translate
