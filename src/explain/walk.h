// The explanation as content, without a form: text.cpp and html.cpp each give it one.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "attend/explain.h"
#include "attend/picture.h"

namespace attend {

struct Paragraph {
  std::string text;
};
// A formula with its shapes: "scores = queries keysᵀ" and "[6,6] = [6,24] [24,6]".
struct Formula {
  std::string text;
  std::string shapes;
};
// A tensor with its name, shown as PyTorch prints it.
struct Numbers {
  std::string name;
  View values;
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
struct Picture {
  HeatMap map;
};
using Block = std::variant<Paragraph, Formula, Numbers, Table, Items, Picture>;

struct Step {
  std::string title;
  std::vector<Block> blocks;
};

// The steps of the trace, worked out for one query row and (in a multi-head trace) one head.
// The views point into the trace. Throws bad_value for a focus or head that the trace does not have.
std::vector<Step> walk(const Trace& trace, std::int64_t focus, std::int64_t head);

// One map of the weights for each head, with the trace's words as labels.
std::vector<HeatMap> weight_maps(const Trace& trace);
std::string picture_title(const Trace& trace);

// Throws bad_shape or bad_value where words, ids and embeddings do not fit or a word is not UTF-8: a Trace's fields are
// anyone's to change.
void check_text(const Trace& trace);

// A word or title as it may be printed: a terminal obeys control characters, and HTML does not allow them.
std::string shown(const std::string& text);

// "Life"; "to (5)" for a word that occurs more than once; "x3" in a sequence without words, as document 002 names them.
std::string label_of(const std::vector<std::string>& tokens, std::int64_t position);

}  // namespace attend
