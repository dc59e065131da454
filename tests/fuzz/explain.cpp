// explain() of any text, and every form that a trace has: text, JSON, a page, pictures.
#include <nlohmann/json.hpp>

#include "tests/fuzz/input.h"
#include "tests/picture/xml.h"

using namespace attend;

namespace {

// Pictures grow with the words times the words.
constexpr std::size_t longest_text = 80;

ExplainOptions make_options(fuzz::Input& input) {
  constexpr std::optional<WeightInit> inits[] = {std::nullopt, WeightInit::uniform, WeightInit::linear};
  ExplainOptions options;
  options.seed = input.byte();
  options.embedding_size = input.between(0, 5);
  options.d_k = input.between(0, 5);
  options.d_v = input.between(0, 5);
  options.heads = input.between(-1, 3);
  options.weights = input.one_of(inits);
  options.causal = input.flag();
  options.positions = input.flag();
  options.scale = input.flag();
  if (input.flag()) options.window = input.between(-1, 4);
  return options;
}

TextStyle make_style(fuzz::Input& input) {
  TextStyle style;
  style.width = static_cast<int>(input.between(30, 130));
  style.colour = input.flag();
  style.all = input.flag();
  if (input.flag()) style.focus = input.between(-1, 6);
  if (input.flag()) style.head = input.between(-1, 3);
  return style;
}

// One form an input: drawing takes much longer than the rest.
enum Form { text, json, page, svg, png, forms };

std::string write(const Trace& trace, const TextStyle& style, int form) {
  if (form == json) return to_json(trace);
  if (form == page) return to_html(trace, style);
  if (form == svg) return to_svg(trace, style);
  return form == png ? to_png(trace, style) : to_text(trace, style);
}

void check(const std::string& written, int form) {
  if (form != png) decode_utf8(written, {"", "what was written"});
  if (form == svg) test::Xml{written};
  if (form == json) fuzz::require(nlohmann::json::accept(written), "the JSON is none");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  ExplainOptions options = make_options(input);
  const TextStyle style = make_style(input);
  ExplainKeep keep{.scores = input.flag()};
  if (input.flag()) keep.head = input.between(-1, 3);
  const auto form = static_cast<int>(input.between(0, forms - 1));
  // What no UTF-8 holds parts the two sentences.
  const std::string_view both = input.rest().substr(0, longest_text);
  const std::size_t part = both.find('\xff');
  options.text = both.substr(0, part);
  if (part != std::string_view::npos) options.second_text = both.substr(part + 1);
  std::string written;
  if (!fuzz::error_of([&] { written = write(explain(options, keep), style, form); })) check(written, form);
  return 0;
}
