// attend as a worker of benchmarks/bench.py: one JSON request a line on stdin, one JSON answer a line on stdout.
// benchmarks/peers/protocol.py says what the requests are; this worker knows the roofs and memory besides.
#include <attend/attend.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "memory.h"
#include "roofs.h"

namespace attend::bench {
namespace {

using nlohmann::json;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name == name_of(dtype)) return dtype;
  }
  throw std::runtime_error("no dtype " + name);
}

// Inputs are .npy files: f32 that the case's dtype holds exactly, bool or i64.
Tensor load(const json& inputs, const std::string& name, DType dtype) {
  return read_npy(inputs.at(name).get<std::string>()).view().to(dtype);
}

// What is run again and again, with the tensors that it reads.
struct Prepared {
  virtual ~Prepared() = default;
  virtual void run() = 0;
  virtual Tensor output() const = 0;
  // Bytes that a call returns.
  virtual std::int64_t result_bytes() const = 0;
};

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.count() * size_of(tensor.dtype());
}

class AttentionCase : public Prepared {
 public:
  AttentionCase(const json& spec, const json& inputs) {
    const DType dtype = dtype_named(spec.at("dtype"));
    q_ = load(inputs, "q", dtype), k_ = load(inputs, "k", dtype), v_ = load(inputs, "v", dtype);
    options_.causal = spec.value("causal", false);
    options_.softcap = spec.value("softcap", 0.0);
    if (spec.contains("window")) options_.window = {spec["window"][0], spec["window"][1]};
    if (spec.contains("offset")) options_.offset = Offset(spec["offset"].get<std::int64_t>());
    option(inputs, "mask", DType::boolean, options_.mask);
    option(inputs, "bias", DType::f32, options_.bias);
    option(inputs, "alibi_slopes", DType::f32, options_.alibi_slopes);
    option(inputs, "sinks", DType::f32, options_.sinks);
    option(inputs, "key_lengths", DType::i64, options_.key_lengths);
    option(inputs, "query_starts", DType::i64, options_.query_starts);
    option(inputs, "key_starts", DType::i64, options_.key_starts);
  }
  // Into memory that is there, but for the first time: as ONNX Runtime and OpenVINO do.
  void run() override {
    if (result_.out.rank() == 1)
      result_ = attention(q_, k_, v_, options_);
    else
      attention_into(result_.out.view(), result_.lse.view(), q_, k_, v_, options_);
  }
  Tensor output() const override { return result_.out.clone(); }
  std::int64_t result_bytes() const override { return bytes_of(result_.out) + bytes_of(result_.lse); }

 protected:
  Tensor q_, k_, v_;
  AttentionOptions options_;
  AttentionResult result_;

 private:
  void option(const json& inputs, const std::string& name, DType dtype, std::optional<View>& view) {
    if (inputs.contains(name)) view = (kept_[name] = load(inputs, name, dtype));
  }

  std::map<std::string, Tensor> kept_;  // what options_ looks at
};

// The gradients of q, k and v; out, lse and lse_low are made before.
class BackwardCase : public AttentionCase {
 public:
  BackwardCase(const json& spec, const json& inputs)
      : AttentionCase(spec, inputs), dout_(load(inputs, "dout", q_.dtype())) {
    result_ = attention(q_, k_, v_, options_, {.lse_low = true});
  }
  void run() override {
    if (gradients_.dq.rank() == 1)
      gradients_ =
          attention_backward(dout_, q_, k_, v_, result_.out, result_.lse, options_, {.lse_low = result_.lse_low});
    else
      attention_backward_into({gradients_.dq.view(), gradients_.dk.view(), gradients_.dv.view()}, dout_, q_, k_, v_,
                              result_.out, result_.lse, options_, {}, result_.lse_low);
  }
  // dq, dk and dv one after another.
  Tensor output() const override {
    const Tensor* parts[] = {&gradients_.dq, &gradients_.dk, &gradients_.dv};
    std::int64_t count = 0;
    for (const Tensor* part : parts) count += part->count();
    Tensor all(Dims{count}, q_.dtype());
    std::int64_t at = 0;
    for (const Tensor* part : parts) {
      all.view().slice(0, at, at + part->count()).copy_from(part->view().reshape({part->count()}));
      at += part->count();
    }
    return all;
  }
  std::int64_t result_bytes() const override {
    return bytes_of(gradients_.dq) + bytes_of(gradients_.dk) + bytes_of(gradients_.dv);
  }

 private:
  Tensor dout_;
  AttentionGradients gradients_;
};

// Where the weights go, given lse.
class SummaryCase : public AttentionCase {
 public:
  SummaryCase(const json& spec, const json& inputs) : AttentionCase(spec, inputs) { AttentionCase::run(); }
  void run() override {
    summary_ = attention_summary(q_, k_, result_.lse, options_, {.top = 8, .map = MapSize{256, 256}});
  }
  Tensor output() const override { return summary_.entropy.clone(); }
  std::int64_t result_bytes() const override {
    std::int64_t bytes = 0;
    for (const Tensor* result : {&summary_.top_keys, &summary_.top_weights, &summary_.entropy, &summary_.received,
                                 &summary_.lift, &*summary_.distance, &*summary_.map, &*summary_.map_max}) {
      bytes += bytes_of(*result);
    }
    return bytes;
  }

 private:
  AttentionSummary summary_;
};

// One step of decoding over a KvCache for each sequence.
class CachedCase : public Prepared {
 public:
  CachedCase(const json& spec, const json& inputs) : q_(load(inputs, "q", dtype_named(spec.at("dtype")))) {
    const DType dtype = spec.at("cache") == "i8" ? DType::i8 : dtype_named(spec.at("cache"));
    const Tensor k = load(inputs, "k", DType::f32), v = load(inputs, "v", DType::f32);
    std::int64_t at = 0;
    for (const std::int64_t length : spec.at("lengths")) {
      KvCache& cache = caches_.emplace_back(1, k.size(1), k.size(3), v.size(3), dtype);
      cache.append(k.view().slice(2, at, at + length), v.view().slice(2, at, at + length));
      list_.push_back(&cache);
      at += length;
    }
  }
  void run() override { result_ = attention(q_, list_); }
  Tensor output() const override { return result_.out.clone(); }
  std::int64_t result_bytes() const override { return bytes_of(result_.out) + bytes_of(result_.lse); }

 private:
  Tensor q_;
  std::deque<KvCache> caches_;
  std::vector<const KvCache*> list_;
  AttentionResult result_;
};

class LinearCase : public Prepared {
 public:
  LinearCase(const json& spec, const json& inputs)
      : x_(load(inputs, "x", dtype_named(spec.at("dtype")))),
        linear_(Linear(load(inputs, "weight", DType::f32), load(inputs, "bias", DType::f32)).to(x_.dtype())) {}
  void run() override { result_ = linear_.forward(x_); }
  Tensor output() const override { return result_.clone(); }
  std::int64_t result_bytes() const override { return bytes_of(result_); }

 private:
  Tensor x_;
  Linear linear_;
  Tensor result_;
};

class LayerCase : public Prepared {
 public:
  LayerCase(const json& spec, const json& inputs)
      : x_(load(inputs, "x", dtype_named(spec.at("dtype")))), layer_(layer_of(spec, inputs).to(x_.dtype())) {}
  void run() override { result_ = std::move(layer_.forward(x_).output); }
  Tensor output() const override { return result_.clone(); }
  std::int64_t result_bytes() const override { return bytes_of(result_); }

 private:
  static MultiHeadAttention layer_of(const json& spec, const json& inputs) {
    TensorMap state;
    for (const char* name : {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"})
      state[name] = load(inputs, name, DType::f32);
    return MultiHeadAttention::from_state_dict(state, spec.at("heads"));
  }

  Tensor x_;
  MultiHeadAttention layer_;
  Tensor result_;
};

class Worker {
 public:
  json answer(const json& request) {
    const std::string what = request.at("do");
    if (what == "hello")
      return {{"name", "attend"}, {"version", ATTEND_VERSION_STRING}, {"compiler", ATTEND_BENCH_COMPILER}};
    if (what == "prepare") return prepare(request);
    if (what == "run") return run(request);
    if (what == "output") return write_output(request);
    if (what == "drop") return drop(request);
    if (what == "roof") return roof(request);
    if (what == "memory") return memory(request);
    throw std::runtime_error("no request " + what);
  }

 private:
  json prepare(const json& request) {
    const json& spec = request.at("case");
    std::unique_ptr<Prepared> made;
    const std::string kind = spec.at("kind");
    if (kind == "cached")
      made = std::make_unique<CachedCase>(spec, request.at("inputs"));
    else if (kind == "linear")
      made = std::make_unique<LinearCase>(spec, request.at("inputs"));
    else if (kind == "layer")
      made = std::make_unique<LayerCase>(spec, request.at("inputs"));
    else if (spec.value("backward", false))
      made = std::make_unique<BackwardCase>(spec, request.at("inputs"));
    else if (spec.value("summary", false))
      made = std::make_unique<SummaryCase>(spec, request.at("inputs"));
    else
      made = std::make_unique<AttentionCase>(spec, request.at("inputs"));
    cases_[request.at("id")] = std::move(made);
    return {{"how", kind == "cached"                ? "attend::attention over KvCaches"
                    : kind == "linear"              ? "attend::Linear"
                    : kind == "layer"               ? "attend::MultiHeadAttention"
                    : spec.value("backward", false) ? "attend::attention_backward_into"
                    : spec.value("summary", false)  ? "attend::attention_summary"
                                                    : "attend::attention_into"}};
  }

  // Seconds of one call, several times. Short calls are timed many at a time, as the clock costs some 30 ns.
  json run(const json& request) {
    Prepared& prepared = *cases_.at(request.at("id"));
    const tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
                                      request.at("threads").get<std::size_t>());
    const double warm = now();
    prepared.run();
    const double once = std::max(now() - warm, 1e-9);
    const auto calls = static_cast<std::int64_t>(std::clamp(200e-6 / once, 1.0, 1e6));
    const double wanted = request.at("seconds");
    std::vector<double> seconds;
    const double begin = now();
    while (seconds.size() < request.at("least").get<std::size_t>() || now() - begin < wanted) {
      const double start = now();
      for (std::int64_t i = 0; i < calls; ++i) prepared.run();
      seconds.push_back((now() - start) / static_cast<double>(calls));
    }
    return {{"seconds", seconds}};
  }

  json write_output(const json& request) {
    write_npy(request.at("path").get<std::string>(), cases_.at(request.at("id"))->output().view().to(DType::f32));
    return json::object();
  }

  json drop(const json& request) {
    cases_.erase(request.at("id").get<std::string>());
    return json::object();
  }

  json roof(const json& request) {
    const std::string which = request.at("roof");
    const int threads = request.at("threads");
    const double seconds = request.at("seconds");
    Roof found;
    if (which == "fma")
      found = fma_roof(threads, seconds);
    else if (which == "bf16")
      found = bf16_roof(threads, seconds);
    else if (which == "read")
      found = read_memory(threads, request.at("bytes"), seconds);
    else
      throw std::runtime_error("no roof " + which);
    return {{"per_second", found.per_second}, {"loop", found.loop}};
  }

  // From a Tensor, so that roof and attention read memory with the same pages.
  Roof read_memory(int threads, std::int64_t bytes, double seconds) {
    if (memory_.count() != bytes) {
      memory_ = Tensor(Dims{bytes}, DType::u8);
      std::memset(memory_.raw(), 1, static_cast<std::size_t>(bytes));
    }
    return read_roof(threads, memory_.raw(), static_cast<std::size_t>(bytes), seconds);
  }

  // What one call needs beyond its arguments and its result. To be asked of a fresh process.
  json memory(const json& request) {
    Prepared& prepared = *cases_.at(request.at("id"));
    if (!reset_peak_memory()) throw std::runtime_error("this system does not say how much memory a call needs");
    const std::int64_t before = peak_memory();
    const double start = now();
    prepared.run();
    const double seconds = now() - start;
    return {{"bytes", peak_memory() - before - prepared.result_bytes()}, {"seconds", seconds}};
  }

  std::map<std::string, std::unique_ptr<Prepared>> cases_;
  Tensor memory_;
};

}  // namespace
}  // namespace attend::bench

// NOLINTNEXTLINE(bugprone-exception-escape): bench.py says that it ended
int main() {
  std::ios::sync_with_stdio(false);
  attend::bench::Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      answer = worker.answer(nlohmann::json::parse(line));
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
