// What a model made of a text, in words: its tokens, what it expects next, its heads and where they look.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "attend/picture.h"
#include "cli/command.h"
#include "cli/model.h"

namespace attend::cli {
namespace {

constexpr std::size_t token_lines = 12;  // at most
constexpr std::int64_t strip_tokens = 150;

// Spaces are part of a decoder's tokens: quotes show them.
std::string shown(const Computed& x, const std::string& token) {
  return x.info.decoder() ? "\"" + printable(token) + "\"" : printable(token);
}

// "22.7 million"
std::string counted(std::int64_t count) {
  const auto x = static_cast<double>(count);
  if (x >= 1e9) return fmt::format("{:.2f} billion", x / 1e9);
  if (x >= 1e6) return fmt::format("{:.1f} million", x / 1e6);
  return fmt::format("{}", count);
}

// Words side by side, each in a place of its own, in lines of that width.
std::vector<std::string> in_columns(const std::vector<std::string>& words, int width) {
  std::size_t widest_word = 1;
  for (const std::string& word : words) widest_word = std::max(widest_word, columns_of(word));
  const std::size_t in_line = std::max<std::size_t>(1, (static_cast<std::size_t>(width) + 2) / (widest_word + 2));
  std::vector<std::string> lines;
  for (std::size_t n = 0; n < words.size(); ++n) {
    if (n % in_line == 0) lines.emplace_back();
    const bool last = n % in_line + 1 == in_line || n + 1 == words.size();
    lines.back() += last ? words[n] : fmt::format("{:<{}}  ", words[n], widest_word);
  }
  return lines;
}

std::string tokens_text(const Computed& x, int width) {
  const std::vector<std::string>& tokens = x.recording.tokens[0];
  std::size_t id_width = 1;
  for (const std::int64_t id : x.encoding.ids) id_width = std::max(id_width, fmt::formatted_size("{}", id));
  // A few thousand fill any screen's lines.
  const std::size_t most = std::min<std::size_t>(tokens.size(), 4096);
  std::vector<std::string> words;
  for (std::size_t n = 0; n < most; ++n)
    words.push_back(fmt::format("{:>{}} {}", x.encoding.ids[n], id_width, shown(x, tokens[n])));
  std::vector<std::string> lines = in_columns(words, width);
  std::string text = fmt::format("{} token{}, each with its id", tokens.size(), tokens.size() == 1 ? "" : "s");
  const bool cut = lines.size() > token_lines || most < tokens.size();
  if (cut) lines.resize(std::min(lines.size(), token_lines));
  text += fmt::format("{}:\n{}\n", cut ? fmt::format(" (here the first {} lines; --json has all)", lines.size()) : "",
                      fmt::join(lines, "\n"));
  return text;
}

std::string word_of(const std::vector<std::vector<std::string>>& tokens, std::int64_t place) {
  const std::string word = printable(tokens[0][static_cast<std::size_t>(place)]);
  const std::size_t begin = word.find_first_not_of(' ');
  return begin == std::string::npos ? word : word.substr(begin, word.find_last_not_of(' ') + 1 - begin);
}

// ---- Labels ----

struct ReadMark {
  std::string_view label;
  char letter;
  int red, green, blue;
};
constexpr ReadMark marks[] = {
    {"sink", 's', 128, 128, 128},     {"self", '=', 150, 90, 200},      {"previous", 'p', 66, 133, 214},
    {"duplicate", 'd', 205, 60, 120}, {"induction", 'i', 222, 110, 30}, {"local", 'l', 46, 160, 90},
    {"broad", 'b', 0, 0, 0},          {"focused", 'f', 0, 0, 0},        {"other", 'o', 0, 0, 0}};

// Three columns: an excess, ".69", or a number of keys, "3.2", "123", "8k".
std::string three_columns(const HeadLabel& label) {
  if (label.is_excess()) return label.value < 0.995 ? fmt::format("{:.2f}", label.value).substr(1) : "1.0";
  if (label.value >= 999.5) return fmt::format("{:.0f}k", label.value / 1000);
  return fmt::format("{:.{}f}", label.value, label.value < 9.95 ? 1 : 0);
}

// "i.69+": a label's letter and number, and whether the head is a sink besides. Five columns.
std::string label_cell(const HeadScores& scores, bool colour) {
  if (scores.labels.empty()) return "  -  ";
  const HeadLabel label = *first_label(scores);
  const ReadMark& mark = *std::ranges::find(marks, label.name, &ReadMark::label);
  const bool beside = label.name != "sink" && scores.has_label("sink");
  std::string cell = fmt::format("{}{:>3}{}", mark.letter, three_columns(label), beside ? '+' : ' ');
  if (!colour || !label.is_excess()) return cell;
  return fmt::format("\x1b[38;2;{};{};{}m{}\x1b[0m", mark.red, mark.green, mark.blue, cell);
}

// All heads of one stack's attentions of one kind.
struct HeadGroup {
  std::string name;  // "encoder", "decoder", "cross-attention"; empty: there is one stack
  std::size_t in_layer = 0;
  std::vector<RecordedHead> heads = {};
};

// A line for each layer, in it a cell of five columns for each head.
std::string grid_text(const HeadGroup& group, int width, const std::function<std::string(const HeadScores&)>& cell) {
  const auto& [name, in_layer, heads] = group;
  const auto of_line = static_cast<std::size_t>(std::max(1, (width - 7) / 6));
  std::string text = "layer  ", line;
  for (std::size_t n = 0; n < std::min(in_layer, of_line); ++n) text += fmt::format("{:<6}", n);
  text = text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  for (std::size_t n = 0; n < heads.size(); ++n) {
    const std::size_t place = n % in_layer;
    if (place % of_line == 0) line = place == 0 ? fmt::format("{:>5}  ", n / in_layer) : std::string(7, ' ');
    line += cell(heads[n].scores) + " ";
    if ((place + 1) % of_line == 0 || place + 1 == in_layer)
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::vector<HeadGroup> groups_of(const Recording& recording, const std::vector<RecordedHead>& heads) {
  std::vector<HeadGroup> groups;
  for (const RecordedHead& head : heads) {
    const RecordedLayer& layer = recording.at(head.layer);
    const std::string stack = layer.name.substr(0, layer.name.find('.'));
    const bool named = stack == "encoder" || stack == "decoder";
    const std::string name = !named ? "" : layer.kind == "cross" ? "cross-attention" : stack;
    auto found = std::ranges::find(groups, name, &HeadGroup::name);
    if (found == groups.end()) found = groups.insert(found, {name, layer.heads.size()});
    found->heads.push_back(head);
  }
  return groups;
}

// In words that wrap.
std::string legend(int width) {
  std::string text = "(", line;
  for (const std::string_view part :
       {"s: sink,", "=: self,", "p: previous,", "d: duplicate,", "i: induction,", "l: local,", "with the excess;",
        "b: broad,", "f: focused,", "o: other,", "over so many keys;", "+: beside a sink.",
        "All labels and scores:", "--sort layer or --layer N)"}) {
    if (line.size() + part.size() + 2 > static_cast<std::size_t>(width)) text += line + "\n", line = "";
    line += fmt::format("{}{}", line.empty() ? "" : " ", part);
  }
  return text + line + "\n";
}

std::string group_text(const HeadGroup& group, std::string text, const TerminalStyle& style) {
  text += ":";
  const std::string why = why_no_labels(group.heads);
  if (!why.empty()) {
    // What tells heads apart where chance alone could make each of them a sink.
    const auto elsewhere = [](const HeadScores& s) {
      return s.sink ? fmt::format("{:>4} ", three_columns({"sink", 1 - *s.sink})) : "   - ";
    };
    return fmt::format(
        "{} what they do is not known: {}.\nHow much queries give to others than the key that the head "
        "favours:\n{}",
        text, why, grid_text(group, style.width, elsewhere));
  }
  for (const ReadMark& mark : marks) {
    const auto count = std::ranges::count_if(group.heads, [&](const RecordedHead& head) {
      // Nearly every sink head is broad or other besides: that tells nothing.
      return HeadLabel{mark.label}.is_excess()
                 ? head.scores.has_label(mark.label)
                 : !head.scores.labels.empty() && head.scores.labels.front().name == mark.label;
    });
    if (count > 0) text += fmt::format("{} {} {}", text.ends_with(':') ? "" : ",", count, mark.label);
  }
  const auto cell = [&](const HeadScores& s) { return label_cell(s, style.colour); };
  return text + "; one may be several\n" + grid_text(group, style.width, cell);
}

// "18.6: induction .69"; "18.6" where nothing is known.
std::string short_title(const Recording& recording, const RecordedHead& head) {
  std::string name = name_of(recording, head);
  if (head.scores.labels.empty()) return name;
  const HeadLabel label = *first_label(head.scores);
  return fmt::format("{}: {}{}", name, label.name, label.is_excess() ? " " + three_columns(label) : "");
}

// ", f32" or ", f32, int8 activations"; of quantized ones a line: "Q4_1 and Q8_0 in the file, computed in f32: 92.0 MiB
// of weights"
std::string weights_text(const ModelInfo& info) {
  std::vector<std::string_view> quantized;
  for (const std::string& format : info.formats)
    if (std::isupper(static_cast<unsigned char>(format.front())) != 0) quantized.push_back(format);  // no dtype is
  std::string computed{name_of(info.dtype)};
  if (info.activations != Activations::exact) computed += fmt::format(", {} activations", name_of(info.activations));
  if (quantized.empty()) return ", " + computed;
  return fmt::format("\n{} in the file, computed in {}: {} of weights", fmt::join(quantized, " and "), computed,
                     bytes(info.weight_bytes));
}

}  // namespace

std::string model_text(const Computed& x, int width) {
  const ModelInfo& info = x.info;
  std::string heads = fmt::format("{} layers x {} heads", info.layers, info.heads);
  if (info.encoder_decoder())
    heads = fmt::format("encoder {} layers x {} heads, decoder {}", info.encoder_layers, info.encoder_heads, heads);
  if (info.kv_heads != info.heads) heads += fmt::format(" ({} of keys and values)", info.kv_heads);
  std::string head = info.head.empty() ? "" : fmt::format(" without its head ({})", printable(info.head));
  if (info.task) head = fmt::format(" below its head ({})", printable(info.head));
  return fmt::format("{}: {}{}, {}, {} weights{}\n{}", printable(x.recording.model), info.type, head, heads,
                     counted(info.parameters), weights_text(info), tokens_text(x, width));
}

std::string next_text(const Computed& x) {
  std::size_t id_width = 2, token_width = 5;
  for (const NextToken& next : x.next) {
    id_width = std::max(id_width, fmt::formatted_size("{}", next.id));
    token_width = std::max(token_width, columns_of(shown(x, next.token)));
  }
  std::string text = fmt::format("Next, of {} tokens:\n{:>{}}  {:<{}}  probability\n", x.info.vocabulary, "id",
                                 id_width, "token", token_width);
  for (const NextToken& next : x.next) {
    const std::string share = bar(next.probability, 30);
    text += fmt::format("{:>{}}  {:<{}}  {:.4f}{}{}\n", next.id, id_width, shown(x, next.token), token_width,
                        next.probability, share.empty() ? "" : "  ", share);
  }
  return text;
}

std::string nearest_text(const Computed& x, int width) {
  std::string text = "Nearest of the sentences given (cosine):\n";
  for (const Neighbour& near : x.nearest) {
    const auto room = static_cast<std::size_t>(std::max(10, width - 30));
    std::string sentence = printable(near.text);
    if (columns_of(sentence) > room) sentence = fmt::format("{:.{}}…", sentence, room - 1);
    text += fmt::format("{:6.3f}  {:<20}  {}\n", near.similarity, bar(near.similarity, 20), sentence);
  }
  return text;
}

std::vector<RecordedHead> cross_heads(const Recording& recording, std::vector<RecordedHead> heads) {
  std::erase_if(heads, [&](const RecordedHead& head) { return recording.at(head.layer).kind != "cross"; });
  return heads;
}

std::string labels_text(const Selection& selection, const TerminalStyle& style) {
  const Recording& recording = selection.recording;
  const std::vector<RecordedHead> heads = heads_of(selection);
  const std::string by = selection.by == WeighedBy::norm ? " by norm" : "";
  const std::vector<HeadGroup> groups = groups_of(recording, heads);
  std::string text;
  bool known = false;
  for (const HeadGroup& group : groups) {
    const std::string name = group.name.empty() ? "" : group.name + ": ";
    if (!text.empty()) text += "\n";
    text += group_text(group, fmt::format("{}{} heads{}", name, group.heads.size(), by), style);
    known = known || why_no_labels(group.heads).empty();
  }
  return known ? text + legend(style.width) : text;
}

std::string links_text(const Computed& x, const std::vector<TellingHead>& heads, int width) {
  std::string text = "Strongest links of the most telling heads, between words 2 or more apart:\n";
  if (heads.size() == 1) text = "Strongest links between words 2 or more apart:\n";
  if (x.recording.at(heads[0].head.layer).kind == "cross")
    text =
        "Strongest links of the cross-attention's most telling heads, from what it says to the text\n"
        "(the row of a token writes the next one):\n";
  if (heads[0].head.by == WeighedBy::norm) text.insert(std::string_view("Strongest links").size(), " by norm");
  std::size_t room = 0;
  std::vector<std::string> names;
  for (const TellingHead& telling : heads) {
    names.push_back(short_title(x.recording, telling.head));
    room = std::max(room, names.back().size());
  }
  for (std::size_t n = 0; n < heads.size(); ++n) {
    std::string line = fmt::format("{:<{}}", names[n], room);
    std::vector<std::string> told;
    for (const Link& link : heads[n].links) {
      const std::int64_t layer = heads[n].head.layer;
      const std::string words = fmt::format("{} → {}", word_of(x.recording.query_tokens(layer), link.query),
                                            word_of(x.recording.key_tokens(layer), link.key));
      if (std::ranges::find(told, words) != told.end()) continue;
      const std::string more = fmt::format("   {} {:.2f}", words, link.weight);
      if (columns_of(line + more) > static_cast<std::size_t>(width) || told.size() == 5) break;
      told.push_back(words);
      line += more;
    }
    text += line + "\n";
  }
  if (heads.size() > 1)
    text += fmt::format("(a head's map: --head {}; one word's row of it: --query N besides)\n",
                        name_of(x.recording, heads[0].head));
  return text;
}

std::string lift_text(const Computed& x, const TellingHead& telling, const TerminalStyle& style) {
  const bool by_norm = telling.head.by == WeighedBy::norm;  // its lift would be that of the weights
  Picture picture = head_strip(x.recording, telling.head.layer, telling.head.scores.head, by_norm ? "received" : "lift",
                               {.by = telling.head.by, .scale = PictureScale::linear});
  TokenStrip& strip = std::get<TokenStrip>(picture.drawing);
  const std::int64_t all = strip.values.count(), count = std::min(all, strip_tokens);
  strip.tokens.resize(static_cast<std::size_t>(count));
  strip.values = strip.values.slice(0, 0, count);
  // A sink receives so much more than words do that these would all be pale.
  for (std::int64_t n = 0; n < count; ++n)
    if (n != telling.head.scores.sink_key && !x.encoding.special[static_cast<std::size_t>(n)])
      strip.high = std::max(strip.high, strip.values.item({n}));
  strip.title = fmt::format("{} in {}: {}{}", by_norm ? "Received by norm" : "Lift", name_of(x.recording, telling.head),
                            by_norm ? "what each token adds, 1 for what a query takes in the mean"
                                    : "what each token receives, 1 from uniform attention",
                            count < all ? " ..." : "");
  if (!strip.tokens.empty() && strip.high > 0)
    strip.name = fmt::format("{} (darkest: that or more)", by_norm ? "received by norm" : "lift");
  return terminal_token_strip(strip, style);
}

}  // namespace attend::cli
