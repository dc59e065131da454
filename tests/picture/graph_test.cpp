// svg_layered_graph() and png_layered_graph(): boxes in rows, lines that go round them.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attend/picture.h"
#include "tests/expect.h"
#include "tests/picture/xml.h"

namespace attend {
namespace {

using namespace test;

LayeredGraph sample() {
  return {.names = {"embedding", "1.0", "1.1", "mlp 2", "out & <put>"},
          .rows = {-1, 3, 3, 8, 100},
          .from = {0, 0, 1, 2, 3, 0, 1},
          .to = {1, 2, 3, 3, 4, 4, 4},
          .values = {1, -0.5, 0.25, 0, 2, -3, 0.125},
          .title = "a title",
          .caption = "What it is."};
}

double number(const Element& element, const char* name) {
  return std::stod(element.attributes.at(name));
}

struct Box {
  double left = 0, right = 0, top = 0, bottom = 0;

  bool holds(double x, double y) const {
    return x > left + 0.5 && x < right - 0.5 && y > top + 0.5 && y < bottom - 0.5;
  }
};

// By the name that a pointer reads.
std::map<std::string, Box> boxes_of(const Xml& svg) {
  std::map<std::string, Box> boxes;
  for (const Element& title : svg.named("title")) {
    if (title.parent < 0) continue;
    const Element& of = svg.elements()[static_cast<std::size_t>(title.parent)];
    if (of.name != "rect") continue;
    const double x = number(of, "x"), y = number(of, "y");
    boxes[title.text] = {x, x + number(of, "width"), y, y + number(of, "height")};
  }
  return boxes;
}

TEST(LayeredGraph, BoxesStandInRowsAndLinesGoRoundThem) {
  LayeredGraph graph = sample();
  // Many that stand side by side, below what passes them.
  for (int n = 0; n < 30; ++n) {
    graph.names.push_back("wide name " + std::to_string(n)), graph.rows.push_back(n % 3 == 0 ? 3 : 8);
    graph.from.push_back(0), graph.to.push_back(std::ssize(graph.names) - 1), graph.values.push_back(n);
    graph.from.push_back(std::ssize(graph.names) - 1), graph.to.push_back(4), graph.values.push_back(-n);
  }
  const Xml svg(svg_layered_graph(graph));
  const std::map<std::string, Box> boxes = boxes_of(svg);
  ASSERT_EQ(boxes.size(), graph.names.size());
  EXPECT_EQ(boxes.at("1.0").top, boxes.at("1.1").top);
  EXPECT_LT(boxes.at("out & <put>").bottom, boxes.at("mlp 2").top);
  EXPECT_LT(boxes.at("mlp 2").bottom, boxes.at("1.0").top);
  EXPECT_LT(boxes.at("1.0").bottom, boxes.at("embedding").top);
  for (const auto& [name, box] : boxes)
    for (const auto& [other, beside] : boxes)
      EXPECT_TRUE(name == other || box.top != beside.top || box.right < beside.left || beside.right < box.left)
          << name << " " << other;
  for (const Element& line : svg.named("line"))
    for (int step = 0; step <= 20; ++step) {
      const double x = number(line, "x1") + (number(line, "x2") - number(line, "x1")) * step / 20;
      const double y = number(line, "y1") + (number(line, "y2") - number(line, "y1")) * step / 20;
      for (const auto& [name, box] : boxes) EXPECT_FALSE(box.holds(x, y)) << name << " " << x << "," << y;
    }
}

TEST(LayeredGraph, LinesAreAsWideAsTheirMagnitudeInTheColourOfTheirSign) {
  const Xml svg(svg_layered_graph(sample()));
  std::map<std::string, std::set<std::string>> widths, colours;
  for (const Element& title : svg.named("title")) {
    if (title.parent < 0) continue;
    const Element& of = svg.elements()[static_cast<std::size_t>(title.parent)];
    if (of.name != "line") continue;
    widths[title.text].insert(of.attributes.at("stroke-width")), colours[title.text].insert(of.attributes.at("stroke"));
  }
  ASSERT_EQ(widths.size(), 6U);  // of value 0 there is nothing to read
  EXPECT_EQ(widths.at("embedding to out & <put>: -3.0000"), std::set<std::string>{"5"});
  EXPECT_EQ(widths.at("embedding to 1.0: 1.0000"), std::set<std::string>{"1.67"});
  EXPECT_EQ(widths.at("1.0 to out & <put>: 0.1250"), std::set<std::string>{"0.8"});
  EXPECT_EQ(colours.at("embedding to 1.0: 1.0000"), colours.at("mlp 2 to out & <put>: 2.0000"));
  EXPECT_EQ(colours.at("embedding to 1.1: -0.5000"), colours.at("embedding to out & <put>: -3.0000"));
  EXPECT_NE(colours.at("embedding to 1.0: 1.0000"), colours.at("embedding to 1.1: -0.5000"));
  EXPECT_EQ(svg_layered_graph(sample()), svg_layered_graph(sample()));
  EXPECT_EQ(png_layered_graph(sample()), png_layered_graph(sample()));
  EXPECT_TRUE(png_layered_graph(sample()).starts_with("\x89PNG"));
}

TEST(LayeredGraph, IsAPicture) {
  Picture picture;
  picture.drawing = sample();
  EXPECT_EQ(picture.svg(), svg_layered_graph(sample()));
  EXPECT_EQ(picture.png(), png_layered_graph(sample()));
  EXPECT_EQ(picture.title(), "a title");
  EXPECT_FALSE(picture.terminal({}));
  EXPECT_NE(picture.text().find("mlp 2"), std::string::npos);
}

TEST(LayeredGraph, SaysWhatIsWrong) {
  const auto refused = [](ErrorCode code, auto change, const char* words) {
    LayeredGraph graph = sample();
    change(graph);
    expect_error(
        code, [&] { (void)svg_layered_graph(graph); }, words);
  };
  refused(
      ErrorCode::bad_shape, [](LayeredGraph& x) { x.rows.pop_back(); }, "5 names, 4 rows");
  refused(
      ErrorCode::bad_shape, [](LayeredGraph& x) { x.values.clear(); }, "0 values");
  refused(
      ErrorCode::bad_shape, [](LayeredGraph& x) { x = {}; }, "0 names");
  refused(
      ErrorCode::bad_value, [](LayeredGraph& x) { x.to[2] = 2; }, "line 2 leads from node 1 to 2");
  refused(
      ErrorCode::bad_value, [](LayeredGraph& x) { x.from[0] = -1; }, "from node -1");
  refused(
      ErrorCode::bad_value, [](LayeredGraph& x) { x.to[0] = 5; }, "to 5, expected one of 5");
  refused(
      ErrorCode::bad_value, [](LayeredGraph& x) { x.values[1] = NAN; }, "value 1 is nan");
  refused(
      ErrorCode::bad_value, [](LayeredGraph& x) { x.names[0] = "\xff"; }, "names[0]");
}

}  // namespace
}  // namespace attend
