#include "models/families/rotary.h"

#include <array>
#include <optional>

namespace attend::inline v1::models {

namespace {

constexpr const char* original = "original_max_position_embeddings";
constexpr const char* share = "partial_rotary_factor";

// dynamic stretches texts beyond max_position_embeddings alone, and none here is longer.
RotaryScaling scaling_of(const Member& name) {
  const std::string type = name.text();
  if (type == "default" || type == "dynamic") return RotaryScaling::none;
  if (type == "linear") return RotaryScaling::linear;
  if (type == "llama3") return RotaryScaling::llama3;
  if (type == "yarn") return RotaryScaling::yarn;
  if (type == "longrope") return RotaryScaling::longrope;
  fail_at(name.place(), "{} is not known here; default, linear, dynamic, llama3, yarn and longrope are", quote(type));
}

// Of the older names, "su" needs its length beside the factors, though another one counts.
RotaryScaling scaling_of_phi(const Member& name, const Member& from) {
  const std::string type = name.text();
  if (type == "default") return RotaryScaling::none;
  if (type == "su") from[original];
  if (type == "longrope" || type == "su" || type == "yarn") return RotaryScaling::longrope;
  fail_at(name.place(), "{} is not known here; default and longrope are", quote(type));
}

// One for each pair of numbers.
std::vector<double> read_factors(const Member& from, std::int64_t size) {
  const std::vector<Member> list = from.list();
  if (std::ssize(list) != size / 2)
    fail_at(from.place(), "{} numbers, expected {}, half a head's", list.size(), size / 2);
  std::vector<double> factors;
  factors.reserve(list.size());
  for (const Member& each : list) factors.push_back(number_above_0(each));
  return factors;
}

// None: not there, or empty.
std::optional<Member> object_at(const Member& config, const char* key) {
  if (!config.given(key)) return std::nullopt;
  Member found = config[key];
  if (!found.value().is_object()) found.refuse("an object");
  if (found.value().empty()) return std::nullopt;
  return found;
}

// Where the rotary positions are described: rope_scaling, the older name, goes first, as in Transformers. None:
// nowhere.
std::optional<Member> rotary_part(const Member& config) {
  const std::optional<Member> older = object_at(config, "rope_scaling"), newer = object_at(config, "rope_parameters");
  const std::optional<Member>& part = older ? older : newer;
  for (const char* layers : {"full_attention", "sliding_attention"})
    if (part && part->has(layers))
      fail_at(part->place().in(layers), "rotary positions for a type of layers are not known here");
  return part;
}

// The same of a type of layers. The older name says how layers of full attention are scaled, and nothing else.
std::optional<Member> rotary_part(const Member& config, std::string_view layers) {
  const std::optional<Member> older = object_at(config, "rope_scaling");
  if (config.given("rope_parameters")) {
    if (older) fail_at(older->place(), "beside rope_parameters is not known here");
    const Member all = config["rope_parameters"];
    if (!all.value().is_object()) all.refuse("an object");
    return object_at(all, layers.data());
  }
  if (older && older->has("type") && !older->has("rope_type"))
    fail_at(older->place().in("type"), "without rope_type is not known here");
  return layers == "full_attention" ? older : std::nullopt;
}

void read_llama3(const Member& from, RotaryOptions& options) {
  const Member low = from["low_freq_factor"], high = from["high_freq_factor"];
  options.low_frequency_factor = number_above_0(low);
  options.high_frequency_factor = number_above_0(high);
  if (low.number() > high.number()) low.refuse(fmt::format("no more than high_freq_factor, {}", high.number()));
}

// In yarn, beta_fast and beta_slow of 0 or null stand for what they are where they are missing, as do the mscales;
// truncate of null for false, and in a description of a type of layers truncate is not looked at.
void read_yarn(const Member& from, const RotaryKeys& keys, RotaryOptions& options) {
  const auto read = [&](const char* key, double& value) {
    if (from.given(key) && number_from_0(from[key]) > 0) value = from[key].number();
  };
  read("beta_fast", options.beta_fast);
  read("beta_slow", options.beta_slow);
  read("mscale", options.mscale);
  read("mscale_all_dim", options.mscale_all_dim);
  if (from.has("truncate") && !keys.of_layers) options.truncate = from.given("truncate") && from["truncate"].truth();
  if (options.theta == 1) from.refuse("another rope_theta than 1");
}

void read_scaling(const Member& config, const Member& from, const RotaryKeys& keys, std::int64_t longest,
                  Rotary& rotary) {
  if (keys.longrope_alone)  // whose class looks at the factors whatever the type is
    for (const char* key : {"short_factor", "long_factor"})
      if (from.given(key)) read_factors(from[key], rotary.size);
  const char* type = from.has("rope_type") ? "rope_type" : "type";
  if (!from.has(type)) return;
  RotaryOptions& options = rotary.options;
  options.scaling = keys.longrope_alone ? scaling_of_phi(from[type], from) : scaling_of(from[type]);
  if (from[type].text() == "default") return;
  const bool told = options.scaling == RotaryScaling::longrope && !from.given("factor");
  if (!told) options.factor = number_above_0(from["factor"]);
  if (options.scaling == RotaryScaling::none || options.scaling == RotaryScaling::linear) return;
  const bool outside = !keys.of_layers && config.has(original);
  options.original_length = outside || from.has(original) ? (outside ? config : from)[original].whole(2) : longest;
  if (told) options.factor = static_cast<double>(longest) / static_cast<double>(options.original_length);
  if (from.given("attention_factor")) options.attention_factor = from["attention_factor"].number();
  if (options.scaling == RotaryScaling::llama3) read_llama3(from, options);
  if (options.scaling == RotaryScaling::yarn) read_yarn(from, keys, options);
  if (options.scaling == RotaryScaling::longrope) {
    options.short_factors = read_factors(from["short_factor"], rotary.size);
    options.long_factors = read_factors(from["long_factor"], rotary.size);
  }
}

// How many of a head's numbers are turned.
std::int64_t read_size(const Member& config, const std::optional<Member>& part, const RotaryKeys& keys,
                       std::int64_t head_size) {
  const bool inside = part && part->has(share), outside = keys.share && config.has(keys.share);
  if (!keys.share && inside && (*part)[share].value() != 1.0) fail_at((*part)[share].place(), "only 1.0 is known here");
  if (!keys.share || (!inside && !outside && keys.usual_share == 1)) return head_size;
  double of_head = keys.usual_share;
  Place place = config.place();
  if (inside || outside) {
    const Member said = inside ? (*part)[share] : config[keys.share];
    of_head = said.number(), place = said.place();
  }
  const auto size =
      of_head > 0 && of_head <= 1 ? static_cast<std::int64_t>(static_cast<double>(head_size) * of_head) : 0;
  if (size < 2 || size % 2 != 0)
    fail_at(place, "{} of heads of {} numbers can't be rotated in pairs", of_head, head_size);
  return size;
}

}  // namespace

Rotary read_rotary(const Member& config, const RotaryKeys& keys, std::int64_t longest, std::int64_t head_size) {
  const std::optional<Member> part = keys.of_layers ? rotary_part(config, keys.of_layers) : rotary_part(config);
  if (head_size % 2 != 0 && !keys.share)
    fail_at(config.place(), "heads of {} numbers can't be rotated in pairs", head_size);
  Rotary rotary{read_size(config, part, keys, head_size), {.theta = keys.usual_theta}};
  const bool inside = part && part->has("rope_theta");
  if (inside || config.has(keys.theta))
    rotary.options.theta = number_above_0(inside ? (*part)["rope_theta"] : config[keys.theta]);
  if (part) read_scaling(config, *part, keys, longest, rotary);
  return rotary;
}

}  // namespace attend::inline v1::models
