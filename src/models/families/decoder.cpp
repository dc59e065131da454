#include "models/families/decoder.h"

namespace attend::inline v1::models {

namespace {

// Of each layer whether layer_types give it a window. Others than these two types are not known, also where they do not
// count.
std::vector<bool> sliding_layers(const Member& config, std::int64_t layers, bool there_is_a_window) {
  const std::vector<Member> kinds = config["layer_types"].list();
  if (std::ssize(kinds) != layers)
    fail_at(config["layer_types"].place(), "{} types, expected one for each of {} layers", kinds.size(), layers);
  std::vector<bool> sliding;
  for (const Member& each : kinds) {
    const std::string kind = each.text();
    sliding.push_back(kind == "sliding_attention");
    if (!sliding.back() && kind != "full_attention")
      fail_at(each.place(), "{} is not known here; full_attention and sliding_attention are", quote(kind));
    if (sliding.back() && !there_is_a_window) fail_at(each.place(), "{}, and there is no sliding_window", quote(kind));
  }
  return sliding;
}

}  // namespace

ModelInfo read_decoder(const Loading& loading, const Member& config, ModelFamily family) {
  ModelInfo info;
  info.type = config["model_type"].text();
  info.family = family;
  info.dtype = loading.dtype();
  info.vocabulary = config["vocab_size"].whole(1);
  info.embedding_size = config["hidden_size"].whole(1);
  info.layers = config["num_hidden_layers"].whole(0, 100'000);
  info.heads = info.kv_heads = config["num_attention_heads"].whole(1);
  info.longest = config["max_position_embeddings"].whole(1);
  info.end = end_ids(config);
  return info;
}

std::vector<std::int64_t> read_windows(const Member& config, const WindowRule& rule, std::int64_t layers) {
  const bool used = !rule.used || config[rule.used].truth();
  const bool said = config.given("sliding_window");
  std::int64_t window = said ? config["sliding_window"].whole(used ? 1 : 0) : 0;
  if (rule.needed && !said) config["sliding_window"].refuse("a number");
  if (!used) window = 0;
  std::vector<bool> sliding;
  if (config.given("layer_types")) sliding = sliding_layers(config, layers, window > 0);
  if (sliding.empty() || !rule.by_type)
    sliding = rule.slides ? rule.slides(config, layers) : std::vector<bool>(static_cast<std::size_t>(layers));
  std::vector<std::int64_t> windows;
  windows.reserve(sliding.size());
  for (const bool each : sliding) windows.push_back(each ? window : 0);
  return windows;
}

}  // namespace attend::inline v1::models
