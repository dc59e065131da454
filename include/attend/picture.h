// Pictures of attention weights, in the terminal, as SVG and as PNG: heat maps, tokens coloured by a value each, a grid
// of many small maps, links between tokens.
#pragma once

#ifdef ATTEND_WITHOUT_PICTURES
#error "attend was built with ATTEND_PICTURES=OFF: it has no picture.h"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attend/api.h"
#include "attend/tensor.h"

namespace attend::inline v0 {

// How values between the lightest and the darkest colour are spread over the colours: by themselves, by their square
// roots or by their logarithms. The two latter show small weights beside a large one, and take no value below 0.
// log: where low is 0, the lightest colour is that of the power of ten from three to four decades below the largest
// value, and of all that is less.
// diverging: of values on both sides of 0, which is white: blue below, orange above, and as dark on both sides where
// they are as far away. It reaches as far below 0 as above, to the farther one of low and high.
enum class PictureScale : std::uint8_t { linear, sqrt, log, diverging };
// "linear", "sqrt", "log", "diverging".
ATTEND_API std::string_view name_of(PictureScale scale);
// The one of that name. Throws bad_value for another.
ATTEND_API PictureScale picture_scale(std::string_view name);

// What to draw. All text is UTF-8. Labels may be empty (then indices are shown); else there is one for each row and
// column, or for each index of their ranges.
struct ATTEND_API HeatMap {
  FieldView values = {};                        // [rows, columns], floating point
  std::vector<std::string> row_labels = {};     // queries
  std::vector<std::string> column_labels = {};  // keys
  std::string title = {};
  std::string row_axis = "queries";
  std::string column_axis = "keys";
  // The values of the lightest and the darkest colour. low == high: the largest finite value is the darkest, and low
  // goes down to the smallest.
  double low = 0;
  double high = 0;
  // Whether a query sees a key; without it, all do. A pair that is not seen, and a value of -inf, is drawn as hidden:
  // hatched, in no colour of the scale, with its sign beside the scale.
  std::function<bool(std::int64_t row, std::int64_t column)> visible = {};
  PictureScale scale = PictureScale::linear;
  // The queries and keys that rows and columns stand for, where these are not counted from 0 one by one: a part of a
  // larger matrix, or a map of blocks. Index begin + i is in block floor(i * blocks / (end - begin)), so that blocks
  // differ by one where they don't divide the range. Indices are shown as they stand here.
  std::optional<Range> row_range = {};
  std::optional<Range> column_range = {};
  bool nan_is_hidden = false;  // a NaN is drawn as a pair that is not seen
  // In the terminal, labels are numbered, from here on, where there is no room for them.
  std::int64_t numbers_from = 1;
  // How a block became one value ("sum over keys, mean over queries"): stands below, with the block's size.
  std::string reduction = {};
  std::string caption = {};  // what is drawn: stands below too, but not in the terminal. Of several maps the first's
  // Cells are a line high and as wide as what stands in them, else square. In wide cells, numbers below a 20th of the
  // largest are left out.
  bool wide = false;
  // What stands in the cells in place of their values, row after row, in wide cells; none: the values, where there is
  // room. Of averaged blocks there are none.
  std::vector<std::string> texts = {};
};

// One map for each head of weights [Tq,Tk] or [H,Tq,Tk], after leading axes of 1: each as `like`, where there are
// several titled "head 0" and so on unless `titles` has one for each. A mask (bool, true where a query sees a key) of
// the same shape, or of one that broadcasts to it, hides pairs, and a NaN is hidden too. The maps look into weights and
// mask. Throws bad_shape for weights of another rank, for no heads, for titles that do not fit and for a mask that does
// not broadcast; bad_dtype for a mask that is not bool.
ATTEND_API std::vector<HeatMap> heat_maps(const View& weights, const HeatMap& like = {},
                                          const std::optional<View>& mask = {},
                                          const std::vector<std::string>& titles = {});

struct ATTEND_API TerminalStyle {
  int width = 80;       // columns at the most
  bool colour = false;  // 24-bit ANSI colours; else shades of block characters
};

// Lines that end in '\n'. A map too large for the width, or with more than 60 rows, is shown in averaged blocks, and
// says so. Throws bad_value for a width below 1, and else as svg_heat_map does.
ATTEND_API std::string terminal_heat_map(const HeatMap& map, const TerminalStyle& style);

// Several maps one after the other, on one scale; the title stands above each, with the map's own.
ATTEND_API std::string terminal_heat_maps(const std::vector<HeatMap>& maps, const std::string& title,
                                          const TerminalStyle& style);

// Several maps (the heads) are panels side by side, in rows where they are many, under one title, with one colour scale
// from the lowest low to the highest high and of one kind. A scale that does not spread values evenly is named below.
// Maps over 512 cells a side are drawn as an image of averaged blocks, whose means then stand for the values; NaN and
// infinities are left out of a mean, and a block of hidden pairs alone is hidden. A cell that is NaN is orange, on the
// diverging scale grey. Labels too long or too many are cut or thinned. Pictures are 8-bit sRGB on white; equal
// arguments give equal bytes. Throws bad_shape for labels, texts or ranges that do not fit, for values that are not
// [rows, columns] or are empty; bad_dtype for values that are not floating point; bad_value for low > high, for no
// maps, for text that is not UTF-8, for maps whose scales differ and for a visible value, or low, below 0 on the scales
// sqrt and log.
ATTEND_API std::string svg_heat_map(const std::vector<HeatMap>& maps, const std::string& title);
// The same picture as the bytes of a PNG file, two pixels to each of the SVG's. A character that the built-in font
// (DejaVu Sans) lacks is drawn as a box; the environment variable ATTEND_FONT may name another .ttf or .otf file
// (throws bad_file when it can't be used). Characters are drawn from left to right one by one: scripts that join or
// reorder them, such as Arabic, look right in an SVG only.
ATTEND_API std::string png_heat_map(const std::vector<HeatMap>& maps, const std::string& title);

// Tokens, one after the other in lines that wrap, each on the colour of its value (what it received, its lift, its
// row's entropy). NaN and -inf are hatched: no value. Lines that follow one another begin with their first token's
// index.
struct ATTEND_API TokenStrip {
  std::vector<std::string> tokens = {};
  FieldView values = {};  // [tokens], floating point
  std::string title = {};
  std::string name = {};     // what the values are: stands beside the scale
  std::string caption = {};  // stands below, as a HeatMap's
  // As a HeatMap's.
  double low = 0;
  double high = 0;
  PictureScale scale = PictureScale::linear;
  // In a stack: false without its scale, where that of a strip above is the same, and without indices, at one left side
  // with others that have none.
  bool has_scale = true, has_indices = true;
};
// Each throws bad_shape for values that are not [tokens] or none, and else as its heat map does.
ATTEND_API std::string terminal_token_strip(const TokenStrip& strip, const TerminalStyle& style);
ATTEND_API std::string svg_token_strip(const TokenStrip& strip);
ATTEND_API std::string png_token_strip(const TokenStrip& strip);

// Maps small enough to compare many at a glance, on one colour scale: a row for each layer, a column for each head.
struct ATTEND_API HeadGrid {
  std::vector<HeatMap> maps = {};               // row after row; their own labels and titles are left out
  std::int64_t columns = 0;                     // how many maps a row has
  std::vector<std::string> row_labels = {};     // empty: indices
  std::vector<std::string> column_labels = {};  // empty: indices
  std::string title = {};
  std::string row_axis = "layers";
  std::string column_axis = "heads";
  std::string caption = {};  // stands below, as a HeatMap's
};
// How many rows and columns of a map a grid with so many columns of maps has room for: of more, means are drawn.
ATTEND_API std::int64_t most_grid_cells(std::int64_t columns);
// Throws bad_shape where the maps are not rows of `columns` each or labels do not fit, and else as svg_heat_map does.
ATTEND_API std::string svg_head_grid(const HeadGrid& grid);
ATTEND_API std::string png_head_grid(const HeadGrid& grid);

// Two columns of tokens, and a line from each query to each of its top keys, the denser the larger the weight. Of many
// lines the strongest are drawn, and of many tokens those that have a line, with their indices; the note below says how
// much of the attention that is, where weights are shares of it.
struct ATTEND_API TokenLinks {
  FieldView top_keys = {};                // [Tq,k], i64: keys of each query; -1 for none
  FieldView top_weights = {};             // [Tq,k], floating point
  std::vector<std::string> queries = {};  // Tq tokens; empty: indices
  std::vector<std::string> keys = {};     // Tk tokens; empty: indices, up to the largest in top_keys
  std::int64_t first_query = 0;           // its index: queries are a part
  std::string title = {};
  std::string caption = {};  // stands below, as a HeatMap's
  std::string row_axis = "queries";
  std::string column_axis = "keys";
  // As a HeatMap's.
  double low = 0;
  double high = 0;
  PictureScale scale = PictureScale::linear;
  bool are_shares = true;  // false: weights are numbers of another kind
};
// Throws bad_shape for arrays that are not both [Tq,k] or are empty and for tokens that do not fit, bad_dtype for other
// dtypes, bad_value for a key below -1 or beyond the tokens and for a diverging scale, and else as svg_heat_map does.
ATTEND_API std::string svg_token_links(const TokenLinks& links);
ATTEND_API std::string png_token_links(const TokenLinks& links);

// Nodes in rows, the first row below, and lines between them that lead upwards: as wide as their magnitude, in the
// colours of the diverging scale's ends. A line of value 0 is thin and grey: it joins what belongs together.
struct ATTEND_API LayeredGraph {
  std::vector<std::string> names = {};           // of the nodes
  std::vector<std::int64_t> rows = {};           // of each node: any numbers, the least stands below
  std::vector<std::int64_t> from = {}, to = {};  // of each line: a node, and one in a higher row
  std::vector<double> values = {};               // of each line
  std::string title = {};
  std::string caption = {};  // stands below, as a HeatMap's
};
// Throws bad_shape for lists that do not fit or are empty, bad_value for a line that does not lead upwards between
// nodes that are there and for values that are not finite, and else as svg_heat_map does.
ATTEND_API std::string svg_layered_graph(const LayeredGraph& graph);
ATTEND_API std::string png_layered_graph(const LayeredGraph& graph);

// Heat maps as panels under one title.
struct ATTEND_API HeatMaps {
  std::vector<HeatMap> maps = {};
  std::string title = {};
};

// Pictures one below the other: the first one's title stands above all, the last one's caption below.
struct ATTEND_API PictureStack {
  std::vector<std::variant<HeatMaps, TokenStrip>> parts = {};
};
// Each throws bad_value for no parts, and else as the parts' own function does.
ATTEND_API std::string terminal_picture_stack(const PictureStack& stack, const TerminalStyle& style);
ATTEND_API std::string svg_picture_stack(const PictureStack& stack);
ATTEND_API std::string png_picture_stack(const PictureStack& stack);

// A picture of any kind, which keeps the numbers that it is drawn of.
struct ATTEND_API Picture {
  std::variant<HeatMaps, TokenStrip, HeadGrid, TokenLinks, PictureStack, LayeredGraph> drawing = {};
  std::vector<Tensor> numbers = {};  // what the drawing's views look into: one for each map or strip

  // A copy's views would look into another's numbers.
  Picture() = default;
  Picture(Picture&&) = default;
  Picture& operator=(Picture&&) = default;

  const std::string& title() const;
  // Each throws as the drawing's own function does.
  std::string svg() const;
  std::string png() const;
  // None for a grid, links and a graph: no terminal has room for them.
  std::optional<std::string> terminal(const TerminalStyle& style) const;
  // Its title and labels: what missing_characters() may be asked about.
  std::string text() const;
};

// The distinct characters of a text, in their order, that a PNG has as boxes. Throws as it does.
ATTEND_API std::string missing_characters(std::string_view text);

}  // namespace attend::inline v0
