// One name for what every kind of picture can do.
#include <fmt/ranges.h>

#include "attend/picture.h"
#include "core/message.h"

namespace attend::inline v1 {

namespace {

// One lambda for each kind of picture.
template <class... Kinds>
struct Each : Kinds... {
  using Kinds::operator()...;
};
template <class... Kinds>
Each(Kinds...) -> Each<Kinds...>;

template <class... Lists>
std::string joined(const Lists&... lists) {
  return (fmt::format("{}", fmt::join(lists, "")) + ...);
}

std::string labels_of(const std::vector<HeatMap>& maps) {
  std::string text;
  for (const HeatMap& map : maps) text += map.title + joined(map.row_labels, map.column_labels, map.texts);
  return text;
}

std::string text_of(const HeatMaps& x) {
  return labels_of(x.maps);
}

std::string text_of(const TokenStrip& x) {
  return x.name + joined(x.tokens);
}

std::string text_of(const PictureStack& x) {
  std::string text;
  for (const auto& part : x.parts) text += std::visit([](const auto& drawing) { return text_of(drawing); }, part);
  return text;
}

}  // namespace

std::string terminal_picture_stack(const PictureStack& stack, const TerminalStyle& style) {
  if (stack.parts.empty()) fail(ErrorCode::bad_value, "terminal_picture_stack", "no parts, expected at least one");
  std::string text;
  for (const auto& part : stack.parts) {
    if (!text.empty()) text += "\n";
    text += std::visit(Each{[&](const HeatMaps& x) { return terminal_heat_maps(x.maps, x.title, style); },
                            [&](const TokenStrip& x) { return terminal_token_strip(x, style); }},
                       part);
  }
  return text;
}

const std::string& Picture::title() const {
  static const std::string none;
  const auto of = [](const auto& x) -> const std::string& { return x.title; };
  return std::visit(Each{of,
                         [&](const PictureStack& x) -> const std::string& {
                           return x.parts.empty() ? none : std::visit(of, x.parts[0]);
                         }},
                    drawing);
}

std::string Picture::svg() const {
  return std::visit(
      Each{[](const HeatMaps& x) { return svg_heat_map(x.maps, x.title); },
           [](const TokenStrip& x) { return svg_token_strip(x); }, [](const HeadGrid& x) { return svg_head_grid(x); },
           [](const TokenLinks& x) { return svg_token_links(x); },
           [](const LayeredGraph& x) { return svg_layered_graph(x); },
           [](const PictureStack& x) { return svg_picture_stack(x); }},
      drawing);
}

std::string Picture::png() const {
  return std::visit(
      Each{[](const HeatMaps& x) { return png_heat_map(x.maps, x.title); },
           [](const TokenStrip& x) { return png_token_strip(x); }, [](const HeadGrid& x) { return png_head_grid(x); },
           [](const TokenLinks& x) { return png_token_links(x); },
           [](const LayeredGraph& x) { return png_layered_graph(x); },
           [](const PictureStack& x) { return png_picture_stack(x); }},
      drawing);
}

std::optional<std::string> Picture::terminal(const TerminalStyle& style) const {
  if (const auto* maps = std::get_if<HeatMaps>(&drawing)) return terminal_heat_maps(maps->maps, maps->title, style);
  if (const auto* strip = std::get_if<TokenStrip>(&drawing)) return terminal_token_strip(*strip, style);
  if (const auto* stack = std::get_if<PictureStack>(&drawing)) return terminal_picture_stack(*stack, style);
  return std::nullopt;
}

std::string Picture::text() const {
  return title() + std::visit(Each{[](const auto& x) { return text_of(x); },
                                   [](const HeadGrid& x) { return joined(x.row_labels, x.column_labels); },
                                   [](const TokenLinks& x) { return joined(x.queries, x.keys); },
                                   [](const LayeredGraph& x) { return joined(x.names); }},
                              drawing);
}

}  // namespace attend::inline v1
