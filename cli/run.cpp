#include <fmt/format.h>

#include <filesystem>
#include <list>
#include <memory>

#include "attend/io.h"
#include "cli/run.h"
#include "cli/tensor_file.h"

namespace attend::cli {
namespace {

void write_tensors(const std::string& file, const NamedViews& tensors) {
  const std::string ending = std::filesystem::path(file).extension().string();
  writing([&] {
    if (ending == ".npy")
      write_npy(file, tensors.front().second);
    else if (ending == ".npz")
      write_npz(file, tensors);
    else
      write_safetensors(file, tensors);
  });
  tell("attend: wrote " + file);
}

}  // namespace

bool same_file(const std::string& a, const std::string& b) {
  const auto place = [](const std::string& file) {
    std::error_code error;
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file, error), error);
  };
  return !a.empty() && place(a) == place(b);
}

void check_line(const RunArguments& arguments) {
  const bool in_npy = arguments.out.ends_with(".npy"), values = !arguments.v.empty();
  const InsideArguments& inside = arguments.inside;
  if (!values && !inside.any()) throw UsageError("V is required without --summary or --weights");
  if (!values && !arguments.lse.empty()) throw UsageError("--lse: is written with the result, for which V is required");
  if (!values && !arguments.dropout.empty()) throw UsageError("--dropout: nothing is dropped without V");
  if (arguments.seed && arguments.dropout.empty()) throw UsageError("--seed: nothing is drawn without --dropout");
  if (arguments.out.empty()) {
    if (!inside.summary) throw UsageError("--output is required without --summary");
    if (values) throw UsageError("--output is required with V: --summary prints nothing of the result");
    for (const auto& [name, given] : {std::pair("--weights", !inside.weights.empty()),
                                      {"--top", inside.top.has_value()},
                                      {"--map", !inside.map.empty()}})
      if (given) throw UsageError(fmt::format("{}: --output is required, as --summary prints no such numbers", name));
    if (!arguments.tensors.at("query_starts").empty())
      throw UsageError("--query-starts: --output is required, as --summary prints the heads of one sequence");
  }
  if (same_file(arguments.lse, arguments.out) && in_npy)
    throw UsageError("--lse and -o name the same file, and .npy holds one tensor: use .npz or .safetensors");
  if (in_npy && (inside.summary || (values && inside.any())))
    throw UsageError(fmt::format("{} and -o: .npy holds one tensor, use .npz or .safetensors",
                                 inside.summary ? "--summary" : "--weights"));
}

AttentionOptions parse_options(const RunArguments& arguments) {
  AttentionOptions options = parse_visibility(arguments.visibility);
  if (!arguments.scale.empty()) options.scale = parse_real("--scale", arguments.scale);
  for (const NumberOption& option : number_options()) {
    const std::string& text = arguments.numbers.at(option.name);
    if (!text.empty()) options.*option.value = parse_real(flag_of(option.name), text);
  }
  if (!arguments.dropout.empty())
    options.dropout = {parse_real("--dropout", arguments.dropout), arguments.seed.value_or(0)};
  return options;
}

namespace {

void compute(const RunArguments& arguments, const InsideOptions& inside, const Tensor& q, const Tensor& k,
             const AttentionOptions& options) {
  if (arguments.out.empty()) return print(head_table(q, k, options));
  std::optional<AttentionResult> result;
  if (!arguments.v.empty())
    result = attention(q, k, read_tensor(arguments.v), options, {.lse_low = arguments.inside.any()});
  const Inside found = look_inside(inside, q, k, options, result ? &*result : nullptr);

  const bool together = same_file(arguments.lse, arguments.out);
  NamedViews tensors;
  if (result) tensors.emplace_back("out", result->out);
  if (together) tensors.emplace_back("lse", result->lse);
  for (const auto& named : found.named()) tensors.push_back(named);
  write_tensors(arguments.out, tensors);
  if (!together && !arguments.lse.empty()) write_tensors(arguments.lse, {{"lse", result->lse}});
}

void run(const RunArguments& arguments) {
  const Started started = arguments.no_mpi ? Started{} : started_by_mpirun();
  if (started.ranks > 1) return run_on_ranks(arguments, *join_ranks(started));
  check_line(arguments);
  const InsideOptions inside = parse_inside(arguments.inside);
  AttentionOptions options = parse_options(arguments);
  const Tensor q = read_tensor(arguments.q);
  const Tensor k = read_tensor(arguments.k);
  std::list<Tensor> read;  // what the options' views point to
  for (const TensorOption& option : tensor_options()) {
    const std::string& file = arguments.tensors.at(option.name);
    if (!file.empty()) options.*option.value = read.emplace_back(read_tensor(file));
  }
  if (!inside.summary) check_offset(options);  // distance uses it
  check_part(inside, q, k);
  compute(arguments, inside, q, k, options);
}

void add_options(App& app, RunArguments& arguments) {
  const std::vector<std::string> endings = {".npy", ".npz", ".safetensors"};
  app.add_option("Q", arguments.q, "Queries, [B,H,Tq,D], [H,T,D] or [T,D]")->type_name("FILE")->required();
  app.add_option("K", arguments.k, "Keys, [B,Hkv,Tk,D]")->type_name("FILE")->required();
  app.add_option("V", arguments.v, "Values, [B,Hkv,Tk,Dv]; not needed if only --summary or --weights is wanted")
      ->type_name("FILE")
      ->check([](const std::string& file) { return file.empty() ? "expected a file, got ''" : ""; });
  file_ending(app.add_option("-o,--output", arguments.out, "Write the result to FILE: .npy, .npz or .safetensors"),
              endings);
  file_ending(app.add_option("--lse", arguments.lse,
                             "Also write the log-sum-exp of each row's scores; with the same FILE as -o (.npz or "
                             ".safetensors), that file holds both"),
              endings);
  add_visibility(app, arguments.visibility);
  for (const TensorOption& option : tensor_options())
    app.add_option(flag_of(option.name), arguments.tensors[option.name],
                   fmt::format("{}, {}: {}", name_of(option.type), name_of(option.shape), option.meaning))
        ->type_name("FILE");
  app.add_option("--scale", arguments.scale, "Factor of the scores (default: 1 / sqrt(D))")->type_name("S");
  for (const NumberOption& option : number_options())
    app.add_option(flag_of(option.name), arguments.numbers[option.name], std::string(option.meaning))
        ->type_name(std::string(option.letter));
  app.add_option("--dropout", arguments.dropout,
                 "Drop each weight with probability P; the others are multiplied by 1 / (1 - P)")
      ->type_name("P");
  whole_number(app.add_option("--seed", arguments.seed, "Decides which weights are dropped (default: 0)"), 0,
               std::numeric_limits<std::uint64_t>::max());
  add_inside(app, arguments.inside);
  choose_one(
      app.add_option(
          "--sharding", arguments.sharding,
          "Which rows each process has when mpirun starts several. contiguous: one run of rows. zigzag: one run from "
          "either end, so that --causal gives all the same work (default: zigzag with --causal, else contiguous)"),
      "contiguous|zigzag");
  app.add_flag("--no-mpi", arguments.no_mpi, "Compute everything in this process, even if mpirun started it");
}

}  // namespace

Command add_run(App& root) {
  App* app = root.add_subcommand(
      "run",
      "Compute scaled dot-product attention on files: softmax(q k^T * scale) v. Each file is .npy, .npz or "
      ".safetensors; FILE:NAME takes one tensor from a file with several. When mpirun starts several processes, each "
      "computes its own rows and holds only its slice of the files.");
  app->examples(
      "attend run q.npy k.npy v.npy -o out.npy\n"
      "attend run qkv.npz:q qkv.npz:k qkv.npz:v --window 128,0 -o out.safetensors\n"
      "mpirun -n 8 attend run q.npy k.npy v.npy --causal -o out.npy\n"
      "attend run q.npy k.npy --causal --offset bottom_right --summary\n"
      "attend run q.npy k.npy --causal --weights 0:64,0:64 -o weights.npy");
  auto arguments = std::make_shared<RunArguments>();
  add_options(*app, *arguments);
  return {app, [arguments] { run(*arguments); }};
}

}  // namespace attend::cli
