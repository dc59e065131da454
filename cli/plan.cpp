#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "attend/attention.h"
#include "cli/attention_options.h"
#include "cli/command.h"
#include "cli/plan.h"
#include "cli/ranks.h"

namespace attend::cli {
namespace {

struct PlanArguments {
  std::string q, kv, dtype = "f32";
  std::int64_t v_head_size = 0;
  std::map<std::string_view, std::string> lists;  // tensor options of whole numbers, which are given
  std::map<std::string_view, bool> flags;         // those of which the plan wants to know only that they are there
  Visibility visibility;
  bool json = false;
  std::optional<std::int64_t> ranks;
  std::string sharding, rate, bandwidth, latency;
  bool backward = false;
};

std::vector<std::int64_t> parse_list(const std::string& option, const std::string& text) {
  if (auto numbers = parse_whole_numbers(text)) return *std::move(numbers);
  throw UsageError(
      fmt::format("{}: expected whole numbers with commas between, such as 0,5,12, got '{}'", option, text));
}

Dims parse_shape(const std::string& argument, const std::string& text) {
  // Within the brackets that error messages and `attend inspect` show it in, or without.
  const bool brackets = text.starts_with('[') && text.ends_with(']');
  const auto sizes = parse_whole_numbers(brackets ? text.substr(1, text.size() - 2) : text);
  if (sizes && sizes->size() >= 2 && sizes->size() <= 4 && std::ranges::all_of(*sizes, [](auto n) { return n >= 0; }))
    return Dims(std::span(*sizes));
  throw UsageError(fmt::format("{}: expected a shape of 2 to 4 axes, such as 1,12,512,64, got '{}'", argument, text));
}

DType parse_dtype(const std::string& name) {
  for (const DType dtype : {DType::f64, DType::bf16, DType::f16})
    if (name == name_of(dtype)) return dtype;
  return DType::f32;  // the only other word that the option takes
}

// What the plan is of, and what its options' views point to.
struct Call : PlannedCall {
  std::list<Tensor> tensors = {};
};

bool is_list(const TensorOption& option) {
  return option.type == TensorOption::Type::whole;
}

Tensor read_list(const TensorOption& option, const std::string& text) {
  const std::vector<std::int64_t> numbers = parse_list(flag_of(option.name), text);
  return View(numbers.data(), DType::i64, {std::ssize(numbers)}).clone();
}

// A tensor that the option could be, for H query heads.
Tensor sample(const TensorOption& option, std::int64_t heads) {
  Dims shape{option.shape == TensorOption::Shape::pairs ? 1 : heads};
  if (option.shape == TensorOption::Shape::distances) shape.push_back(1);
  return Tensor(shape, option.type == TensorOption::Type::boolean ? DType::boolean : DType::f32);
}

Call make_call(const PlanArguments& arguments) {
  Call p;
  p.q = parse_shape("Q", arguments.q);
  p.k = p.v = arguments.kv.empty() ? p.q : parse_shape("--kv", arguments.kv);
  if (arguments.v_head_size > 0) p.v[p.v.rank() - 1] = arguments.v_head_size;
  p.dtype = parse_dtype(arguments.dtype);
  p.options = parse_visibility(arguments.visibility);
  const std::int64_t heads = p.q.rank() > 2 ? p.q[p.q.rank() - 3] : 1;
  for (const TensorOption& option : tensor_options()) {
    std::optional<View>& view = p.options.*option.value;
    if (is_list(option)) {
      const std::string& text = arguments.lists.at(option.name);
      if (!text.empty()) view = p.tensors.emplace_back(read_list(option, text));
    } else if (arguments.flags.at(option.name)) {
      view = p.tensors.emplace_back(sample(option, heads));
    }
  }
  return p;
}

// How much causal, window and lengths leave.
std::string visible_part(const Call& p, const AttentionPlan& plan) {
  double all = 2;
  for (int i = 0; i + 1 < p.q.rank(); ++i) all *= static_cast<double>(p.q[i]);
  all *= static_cast<double>(p.k[p.k.rank() - 2]) * static_cast<double>(p.q[p.q.rank() - 1] + p.v[p.v.rank() - 1]);
  if (all == 0 || plan.flops == all) return "";
  return fmt::format("; {:.3g} % of all pairs of query and key are visible", 100 * plan.flops / all);
}

std::string pieces(const AttentionPlan& plan) {
  std::string text = fmt::format("{} of up to {} query row{}, {} keys at a time", plan.work_items, plan.tile_queries,
                                 plan.tile_queries == 1 ? "" : "s", plan.tile_keys);
  if (plan.key_ranges > 1) text += fmt::format("; {} ranges of keys a head", plan.key_ranges);
  return text;
}

std::string to_text(const Call& p, const AttentionPlan& plan) {
  std::string text = heading_of(p);
  const auto line = [&](const char* name, const std::string& value) { text += plan_line(name, value); };
  line("path", std::string(name_of(plan.path)));
  line("why", plan.reason);
  if (!plan.target.empty()) line("target", plan.target);
  line("work items", pieces(plan));
  line("threads", fmt::format("{}{}", plan.threads, plan.threads > 1 ? " at most" : ""));
  line("scratch", bytes(plan.scratch_bytes));
  line("work", of_thousands(plan.flops, "FLOP") + visible_part(p, plan));
  return text;
}

nlohmann::ordered_json to_json(const Call& p, const AttentionPlan& plan) {
  nlohmann::ordered_json json = json_heading_of(p);
  json["path"] = name_of(plan.path);
  json["target"] = nullptr;
  if (!plan.target.empty()) json["target"] = plan.target;
  json["tile_queries"] = plan.tile_queries;
  json["tile_keys"] = plan.tile_keys;
  json["key_ranges"] = plan.key_ranges;
  json["work_items"] = plan.work_items;
  json["threads"] = plan.threads;
  json["scratch_bytes"] = plan.scratch_bytes;
  json["flops"] = plan.flops;
  json["reason"] = plan.reason;
  return json;
}

// What is asked for of ranks; none where the call is one process's.
std::optional<RanksArguments> ranks_of(const PlanArguments& arguments) {
  const auto number = [](const char* option, const std::string& text, double otherwise) {
    if (text.empty()) return otherwise;
    const double value = parse_real(option, text);
    if (!(value > 0) && !(value == 0 && std::string_view(option) == "--latency"))
      throw UsageError(fmt::format("{}: expected a number above 0, got '{}'", option, text));
    return value;
  };
  if (!arguments.ranks) {
    for (const auto& [option, given] : {std::pair("--sharding", !arguments.sharding.empty()),
                                        {"--backward", arguments.backward},
                                        {"--rate", !arguments.rate.empty()},
                                        {"--bandwidth", !arguments.bandwidth.empty()},
                                        {"--latency", !arguments.latency.empty()}})
      if (given) throw UsageError(fmt::format("{}: nothing uses it without --ranks", option));
    return std::nullopt;
  }
  RingCosts costs;
  costs.flops_per_second = number("--rate", arguments.rate, costs.flops_per_second);
  costs.bytes_per_second = number("--bandwidth", arguments.bandwidth, costs.bytes_per_second);
  costs.latency_seconds = number("--latency", arguments.latency, costs.latency_seconds);
  return RanksArguments{static_cast<int>(*arguments.ranks), is_zigzag(arguments.sharding, arguments.visibility.causal),
                        arguments.backward, costs};
}

void run(const PlanArguments& arguments) {
  const Call p = make_call(arguments);
  check_offset(p.options);
  if (const std::optional<RanksArguments> ranks = ranks_of(arguments))
    return print(plan_on_ranks(*ranks, p, arguments.json));
  const AttentionPlan made = plan(p.q, p.k, p.v, p.dtype, p.options);
  print(arguments.json ? json_text(to_json(p, made), 2) : to_text(p, made));
}

void add_options(App& app, PlanArguments& arguments) {
  app.add_option("Q", arguments.q, "Shape of the queries: B,H,Tq,D, H,T,D or T,D")->type_name("SHAPE")->required();
  app.add_option("--kv", arguments.kv, "Shape of keys and values, B,Hkv,Tk,D (default: that of Q)")->type_name("SHAPE");
  whole_number(app.add_option("--v-head-size", arguments.v_head_size, "Head size of the values (default: D)"), 1);
  choose_one(app.add_option("--dtype", arguments.dtype, "dtype of queries, keys and values (default: f32)"),
             "f32|bf16|f16|f64");
  add_visibility(app, arguments.visibility);
  for (const TensorOption& option : tensor_options()) {
    const std::string meaning = fmt::format("{}: {}", name_of(option.shape), option.meaning);
    if (is_list(option))
      app.add_option(flag_of(option.name), arguments.lists[option.name], meaning)->type_name("N,N,...");
    else
      app.add_flag(flag_of(option.name), arguments.flags[option.name], meaning);
  }
  app.add_flag("--json", arguments.json, "Print one JSON object instead of the text");
  whole_number(
      app.add_option(
          "--ranks", arguments.ranks,
          "Plan for N processes started by mpirun: what each holds, sends and computes, and how long the call takes"),
      1, 65536);
  choose_one(app.add_option("--sharding", arguments.sharding, "Which rows each process has, as in attend run"),
             "contiguous|zigzag");
  app.add_flag("--backward", arguments.backward, "Plan the gradients instead of the result");
  app.add_option("--rate", arguments.rate, "FLOP that a process computes in a second (default: 1e11)")->type_name("N");
  app.add_option("--bandwidth", arguments.bandwidth,
                 "Bytes that a process sends in a second, while it receives as many (default: 1.25e9)")
      ->type_name("N");
  app.add_option("--latency", arguments.latency, "Seconds that each message takes besides (default: 5e-5)")
      ->type_name("S");
}

}  // namespace

std::string heading_of(const PlannedCall& call) {
  return fmt::format("q {}  k {}  v {}  {}\n", call.q.str(), call.k.str(), call.v.str(), name_of(call.dtype));
}

nlohmann::ordered_json json_heading_of(const PlannedCall& call) {
  const auto list = [](const Dims& shape) { return std::vector(shape.begin(), shape.end()); };
  return {{"schema_version", 1},
          {"q", list(call.q)},
          {"k", list(call.k)},
          {"v", list(call.v)},
          {"dtype", name_of(call.dtype)}};
}

std::string plan_line(const char* name, const std::string& value) {
  return fmt::format("  {:<10}  {}\n", name, value);
}

Command add_plan(App& root) {
  App* app = root.add_subcommand(
      "plan",
      "Say how attention would be computed for these shapes, without computing it: path, target, work items, threads, "
      "memory besides the tensors, and why. Masks, sinks, the scale and a softcap do not change the plan.");
  app->examples(
      "attend plan 1,12,512,64\n"
      "attend plan 1,8,4096,40 --kv 1,8,77,40\n"
      "attend plan 1,32,1,128 --kv 1,8,32768,128 --window 256,0 --offset bottom_right\n"
      "attend plan 1,12,512,64 --json | jq .scratch_bytes\n"
      "attend plan 1,32,131072,128 --causal --ranks 8");
  auto arguments = std::make_shared<PlanArguments>();
  add_options(*app, *arguments);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
