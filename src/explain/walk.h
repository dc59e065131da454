// The explanation as content, without a form: text.cpp and html.cpp each give it one.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/attention.h"
#include "attend/explain.h"
#include "attend/picture.h"

namespace attend::inline v1 {

struct Paragraph {
  std::string text;
};
// A formula with its shapes: "scores = queries keysᵀ" and "[6,6] = [6,24] [24,6]".
struct Formula {
  std::string text;
  std::string shapes;
};
// A tensor with its name, shown as PyTorch prints it; of more than `most` numbers, the corners.
struct Numbers {
  std::string name;
  View values;
  std::int64_t most;
};
// A header and rows of cells; the first column is text, the others are numbers.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
// Short pieces that flow in columns: the products of a dot product.
struct Items {
  std::vector<std::string> items;
};
struct Map {
  HeatMap map;
};
using Block = std::variant<Paragraph, Formula, Numbers, Table, Items, Map>;

struct Step {
  std::string title;
  std::vector<Block> blocks;
};

// The steps of the trace: the picture, then what is computed for one word and (in a multi-head trace) one head.
//
// How words, heads and numbers are named, here and in every picture: a word by itself, the fifth one that stands there
// more than once with its place ("to₅"), both counted from 1; "scores(cat, to₅)" is the number of a query and a key,
// "queries(cat)" the row of a word. Heads are "head 2", counted from 0, and are never a subscript.
//
// The views point into the trace and into `row`, which is filled. Throws as TextStyle says.
std::vector<Step> walk(const Trace& trace, const TextStyle& style, AttentionSteps& row);

// The first key that the query at place i sees, and the one after the last.
std::pair<std::int64_t, std::int64_t> visible_keys(const Trace& trace, std::int64_t i);
bool visible(const Trace& trace, std::int64_t i, std::int64_t j);

// The first head that is drawn, and the one after the last: all that are kept, or the one that is asked for.
std::pair<std::int64_t, std::int64_t> drawn_heads(const Trace& trace, const std::optional<std::int64_t>& head);
// One map of the weights for each head that the style asks for, with the trace's words as labels.
std::vector<HeatMap> weight_maps(const Trace& trace, const std::optional<std::int64_t>& head);
std::string picture_title(const Trace& trace);

// Throws bad_shape or bad_value where words, ids and embeddings do not fit or a word is not UTF-8: a Trace's fields are
// anyone's to change.
void check_text(const Trace& trace);

// How explain() was asked, as one JSON object.
std::string made_json(const ExplainOptions& options);

// A word or title as it may be printed: a terminal obeys control characters, and HTML does not allow them.
std::string shown(const std::string& text);

// What each of `count` words is called; "x3" in a sequence without words, as document 002 names them.
std::vector<std::string> labels_of(const std::vector<std::string>& tokens, std::int64_t count);

}  // namespace attend::inline v1
