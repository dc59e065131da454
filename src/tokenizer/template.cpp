#include "tokenizer/template.h"

#include "tokenizer/read.h"

namespace attend::inline v1::tokenizer {

namespace {

constexpr std::int64_t greatest_template_id = UINT32_MAX;
// Of a template's tokens, and of its pieces: real ones have a handful.
constexpr std::size_t most = 1024;

std::vector<std::int64_t> read_ids(const Member& from) {
  std::vector<std::int64_t> ids;
  for (const Member& id : from.list()) ids.push_back(id.whole(0, greatest_template_id));
  return ids;
}

TemplatePiece read_piece(const Member& from, const Member& special) {
  from.only({"Sequence", "SpecialToken"});
  const bool is_text = from.has("Sequence");
  const Member of = from[is_text ? "Sequence" : "SpecialToken"];
  of.only({"id", "type_id"});
  const std::string id = of["id"].text();
  TemplatePiece piece{.type = of["type_id"].whole(0, greatest_template_id)};
  if (!is_text) {
    piece.ids = read_ids(special[id.c_str()]["ids"]);
  } else if (id == "A" || id == "B") {
    piece.text = id == "A" ? 0 : 1;
  } else {
    fail_at(of.place(), "the text {} is neither A nor B", quote(id));
  }
  return piece;
}

std::vector<TemplatePiece> read_pieces(const Member& from, const Member& special, bool is_pair) {
  std::vector<TemplatePiece> pieces;
  bool has[2] = {false, false};
  std::size_t tokens = 0;
  for (const Member& each : from.list()) {
    pieces.push_back(read_piece(each, special));
    tokens += pieces.back().ids.size();
    if (tokens > most || pieces.size() > most) from.refuse(fmt::format("{} tokens and texts at most", most));
    if (pieces.back().text >= 0) has[pieces.back().text] = true;
  }
  if (!has[0] || has[1] != is_pair) from.refuse(is_pair ? "the texts A and B" : "the text A");
  return pieces;
}

// ["[SEP]", 102]
std::int64_t read_id(const Member& from) {
  const std::vector<Member> both = from.list();
  if (both.size() != 2) from.refuse("a token and its id");
  both[0].text();
  return both[1].whole(0, greatest_template_id);
}

void set_bert(const Member& from, Template& to, bool is_bert) {
  const std::int64_t cls = read_id(from["cls"]), sep = read_id(from["sep"]), second = is_bert ? 1 : 0;
  to.single = {{.ids = {cls}}, {.text = 0}, {.ids = {sep}}};
  to.pair = to.single;
  if (!is_bert) to.pair.push_back({.ids = {sep}});
  to.pair.push_back({.text = 1, .type = second});
  to.pair.push_back({.ids = {sep}, .type = second});
}

void set_trimming(const Member& from, Template& to) {
  to.trims = from["trim_offsets"].truth();
  to.keeps_space = from["add_prefix_space"].truth();
}

}  // namespace

Template read_template(const Member& from) {
  Template result;
  bool trims = false, has_template = false;
  const auto read = [&](const Member& step, const std::string& type) {
    // Each changes what the one before it made; more than these two in this order nobody has.
    if (has_template || (trims && type == "ByteLevel"))
      fail_at(step.place(), "{} after others is not known", quote(type));
    has_template = type != "ByteLevel";
    if (type == "ByteLevel") {
      step.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
      trims = true;
      set_trimming(step, result);
    } else if (type == "TemplateProcessing") {
      step.only({"type", "single", "pair", "special_tokens"});
      result.single = read_pieces(step["single"], step["special_tokens"], false);
      result.pair = read_pieces(step["pair"], step["special_tokens"], true);
    } else if (type == "BertProcessing") {
      step.only({"type", "sep", "cls"});
      set_bert(step, result, true);
    } else if (type == "RobertaProcessing") {
      step.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
      if (trims) fail_at(step.place(), "{} after others is not known", quote(type));
      set_bert(step, result, false);
      set_trimming(step, result);
    } else {
      fail_at(step.place(), "the post-processor {} is not known", quote(type));
    }
  };
  for_each_step(from, "processors", read);
  return result;
}

}  // namespace attend::inline v1::tokenizer
