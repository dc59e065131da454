// Pictures of attention for the terminal, as SVG and as PNG: heat maps, coloured tokens, grids of small maps, links
// between tokens, and graphs.
//
//     std::string svg = attend::svg_heat_map({{.values = weights.view(), .row_labels = words}}, "Who looks at whom");
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

namespace attend::inline v1 {

// How values map to colours: linearly, by square root or by logarithm. sqrt and log show small weights beside a large
// one and take no negative values. With log and low = 0, the lightest colour stands for a power of ten, three to four
// decades below the largest value, and for everything smaller. diverging is for values of both signs: 0 is white, blue
// below, orange above. It reaches equally far on both sides, to the larger magnitude of low and high.
enum class PictureScale : std::uint8_t { linear, sqrt, log, diverging };
// "linear", "sqrt", "log", "diverging"
ATTEND_API std::string_view name_of(PictureScale scale);
// The scale with that name. Throws bad_value for others.
ATTEND_API PictureScale picture_scale(std::string_view name);

// A heat map to draw. All text is UTF-8. Give a label for each row and column (or for each index of row_range and
// column_range), or none to show indices.
struct ATTEND_API HeatMap {
  FieldView values = {};                        // [rows,columns], floating point
  std::vector<std::string> row_labels = {};     // queries
  std::vector<std::string> column_labels = {};  // keys
  std::string title = {};
  std::string row_axis = "queries";
  std::string column_axis = "keys";
  // Values of the lightest and darkest colour. If low == high, high becomes the largest finite value, and low the
  // smallest if that is less.
  double low = 0;
  double high = 0;
  // Whether a query sees a key; default: always. Hidden pairs and values of -inf are hatched, with a sign for that
  // beside the scale.
  std::function<bool(std::int64_t row, std::int64_t column)> visible = {};
  PictureScale scale = PictureScale::linear;
  // The queries and keys that the map covers, if it is part of a larger matrix or a map of blocks. Index begin + i is
  // in block floor(i * blocks / (end - begin)), so block sizes differ by at most one. Indices are shown as they are.
  std::optional<Range> row_range = {};
  std::optional<Range> column_range = {};
  bool nan_is_hidden = false;  // draw NaN as a hidden pair
  // In the terminal, labels that don't fit are replaced by numbers from here on.
  std::int64_t numbers_from = 1;
  // How a block became one value ("sum over keys, mean over queries"); shown below with the block's size.
  std::string reduction = {};
  std::string caption = {};  // shown below, except in the terminal; for several maps the first's
  // Cells one line high and as wide as their text, instead of square. Numbers below 1/20 of the largest are left out.
  bool wide = false;
  // Text for wide cells, row by row, instead of the values; empty: the values where they fit. Not shown for averaged
  // blocks.
  std::vector<std::string> texts = {};
};

// One map for each head in weights [Tq,Tk] or [H,Tq,Tk], after leading axes of 1. Each map copies `like`. Several maps
// get the titles "head 0" and so on, or those in `titles`. mask is bool, true where a query sees a key, and broadcasts
// to the weights' shape; pairs it hides, and NaN, are hidden. The maps look into weights and mask. Throws bad_shape for
// weights of another rank, no heads, titles that don't fit or a mask that does not broadcast; bad_dtype for a mask that
// is not bool.
ATTEND_API std::vector<HeatMap> heat_maps(const View& weights, const HeatMap& like = {},
                                          const std::optional<View>& mask = {},
                                          const std::vector<std::string>& titles = {});

struct ATTEND_API TerminalStyle {
  int width = 80;       // most columns
  bool colour = false;  // 24-bit ANSI colours; false: shaded block characters
};

// Lines that each end in a newline. A map wider than the width or with over 60 rows is shown in averaged blocks, and
// says so. Throws bad_value for a width below 1, and what svg_heat_map() throws.
ATTEND_API std::string terminal_heat_map(const HeatMap& map, const TerminalStyle& style);

// Several maps one after another on one scale, each under `title` and its own title.
ATTEND_API std::string terminal_heat_maps(const std::vector<HeatMap>& maps, const std::string& title,
                                          const TerminalStyle& style);

// Draws maps (heads) as panels under one title, in several rows if there are many. They share one kind of scale, from
// the lowest low to the highest high; a scale that is not linear is named below.
//
// Maps of over 512 cells a side become an image of averaged blocks. The means skip NaN and infinities; a block with
// only hidden pairs is hidden. A NaN cell is orange, on the diverging scale grey. Labels that don't fit are cut or
// thinned. Pictures are 8-bit sRGB on white; equal arguments give equal bytes.
//
// Throws bad_shape for labels, texts or ranges that don't fit, and values that are empty or not [rows,columns];
// bad_dtype for values that are not floating point; bad_value for low > high, no maps, text that is not UTF-8, maps
// with different scales, and with sqrt and log for a visible value or low below 0.
ATTEND_API std::string svg_heat_map(const std::vector<HeatMap>& maps, const std::string& title);
// The same picture as PNG, two pixels for each SVG pixel. Characters that the built-in font (DejaVu Sans) lacks become
// boxes; ATTEND_FONT may name another .ttf or .otf file (bad_file if unusable). Characters are drawn one by one from
// left to right, so scripts that join or reorder them, such as Arabic, need SVG.
ATTEND_API std::string png_heat_map(const std::vector<HeatMap>& maps, const std::string& title);

// Tokens in wrapping lines, each coloured by its value (for example received, lift, or entropy). NaN and -inf are
// hatched: no value. Each line begins with the index of its first token.
struct ATTEND_API TokenStrip {
  std::vector<std::string> tokens = {};
  FieldView values = {};  // [tokens], floating point
  std::string title = {};
  std::string name = {};     // name of the values, shown beside the scale
  std::string caption = {};  // shown below, as for HeatMap
  // As in HeatMap.
  double low = 0;
  double high = 0;
  PictureScale scale = PictureScale::linear;
  // In a stack. has_scale = false: leave out the scale that a strip above shows. has_indices = false: no indices; such
  // strips are aligned at the left.
  bool has_scale = true, has_indices = true;
};
// Each throws bad_shape for values that are empty or not [tokens], and what the heat map functions throw.
ATTEND_API std::string terminal_token_strip(const TokenStrip& strip, const TerminalStyle& style);
ATTEND_API std::string svg_token_strip(const TokenStrip& strip);
ATTEND_API std::string png_token_strip(const TokenStrip& strip);

// Many small maps to compare on one colour scale: a row for each layer, a column for each head.
struct ATTEND_API HeadGrid {
  std::vector<HeatMap> maps = {};               // row by row; their labels and titles are not drawn
  std::int64_t columns = 0;                     // maps in a row
  std::vector<std::string> row_labels = {};     // empty: indices
  std::vector<std::string> column_labels = {};  // empty: indices
  std::string title = {};
  std::string row_axis = "layers";
  std::string column_axis = "heads";
  std::string caption = {};  // shown below, as for HeatMap
};
// The most rows and columns of a map that a grid with that many columns of maps can show; larger maps are averaged.
ATTEND_API std::int64_t most_grid_cells(std::int64_t columns);
// Throws bad_shape if maps don't fill rows of `columns` or labels don't fit, and what svg_heat_map() throws.
ATTEND_API std::string svg_head_grid(const HeadGrid& grid);
ATTEND_API std::string png_head_grid(const HeadGrid& grid);

// Two columns of tokens with a line from each query to each of its top keys, denser for larger weights. If there are
// many, only the strongest lines and their tokens are drawn, with indices. If weights are shares of attention, a note
// below says how much of it that is.
struct ATTEND_API TokenLinks {
  FieldView top_keys = {};                // [Tq,k] i64: keys of each query; -1: none
  FieldView top_weights = {};             // [Tq,k], floating point
  std::vector<std::string> queries = {};  // Tq tokens; empty: indices
  std::vector<std::string> keys = {};     // Tk tokens; empty: indices up to the largest in top_keys
  std::int64_t first_query = 0;           // index of the first query, if queries are a part
  std::string title = {};
  std::string caption = {};  // shown below, as for HeatMap
  std::string row_axis = "queries";
  std::string column_axis = "keys";
  // As in HeatMap.
  double low = 0;
  double high = 0;
  PictureScale scale = PictureScale::linear;
  bool are_shares = true;  // false: the weights are not shares of attention
};
// Throws bad_shape for arrays that are empty or not both [Tq,k], and tokens that don't fit; bad_dtype; bad_value for a
// key below -1 or beyond the tokens, and a diverging scale; and what svg_heat_map() throws.
ATTEND_API std::string svg_token_links(const TokenLinks& links);
ATTEND_API std::string png_token_links(const TokenLinks& links);

// Nodes in rows, from bottom to top, joined by lines that lead upwards. A line is as wide as its magnitude, in the end
// colours of the diverging scale. A line of value 0 is thin and grey, and only groups nodes.
struct ATTEND_API LayeredGraph {
  std::vector<std::string> names = {};           // of the nodes
  std::vector<std::int64_t> rows = {};           // row of each node: any numbers, the least at the bottom
  std::vector<std::int64_t> from = {}, to = {};  // each line's nodes; `to` is in a higher row
  std::vector<double> values = {};               // one for each line
  std::string title = {};
  std::string caption = {};  // shown below, as for HeatMap
};
// Throws bad_shape for lists that don't fit or are empty; bad_value for a line that does not lead upwards between
// existing nodes, and values that are not finite; and what svg_heat_map() throws.
ATTEND_API std::string svg_layered_graph(const LayeredGraph& graph);
ATTEND_API std::string png_layered_graph(const LayeredGraph& graph);

// Heat maps as panels under one title.
struct ATTEND_API HeatMaps {
  std::vector<HeatMap> maps = {};
  std::string title = {};
};

// Pictures below each other, under the first one's title and above the last one's caption.
struct ATTEND_API PictureStack {
  std::vector<std::variant<HeatMaps, TokenStrip>> parts = {};
};
// Each throws bad_value for no parts, and what the parts' own functions throw.
ATTEND_API std::string terminal_picture_stack(const PictureStack& stack, const TerminalStyle& style);
ATTEND_API std::string svg_picture_stack(const PictureStack& stack);
ATTEND_API std::string png_picture_stack(const PictureStack& stack);

// A picture of any kind, together with the numbers it draws.
struct ATTEND_API Picture {
  std::variant<HeatMaps, TokenStrip, HeadGrid, TokenLinks, PictureStack, LayeredGraph> drawing = {};
  std::vector<Tensor> numbers = {};  // what the drawing's views look into, one for each map or strip

  // Move only: a copy's views would look into the original's numbers.
  Picture() = default;
  Picture(Picture&&) = default;
  Picture& operator=(Picture&&) = default;

  const std::string& title() const;
  // Each throws what the drawing's own function throws.
  std::string svg() const;
  std::string png() const;
  // None for grids, links and graphs, which don't fit a terminal.
  std::optional<std::string> terminal(const TerminalStyle& style) const;
  // Its title and labels, for missing_characters().
  std::string text() const;
};

// The distinct characters of a text, in order, that a PNG shows as boxes. Same errors as png_heat_map() for its font.
ATTEND_API std::string missing_characters(std::string_view text);

}  // namespace attend::inline v1
