#include "models/pass_back.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/message.h"
#include "core/tensor_memory.h"
#include "models/stack_pass.h"

namespace attend::inline v1::models {

namespace {

constexpr const char* pass_back_function = "gradient";

// Bytes that a layer's gradients need, for each token.
std::int64_t bytes_of_layer(const LayerParts& parts, std::int64_t kv_columns, DType dtype) {
  const std::int64_t E = parts.in->in_size(), F = parts.in->out_size(), heads = parts.self.output->in_size();
  const std::int64_t streams = 3 + std::ssize(parts.norms), units = parts.gate ? 2 * F : F;
  const std::int64_t attention = 3 * heads + 3 * kv_columns, crossing = parts.cross ? 4 * heads : 0;
  return streams * E * 4 + (units + attention + crossing) * size_of(dtype);
}

// One stack, whose pass forward keeps what its gradients need.
template <class Layers>
class StackBack {
 public:
  // kv: the columns of its keys, those of all heads.
  StackBack(const Layers& layers, std::int64_t count, std::int64_t kv, Batch& batch, const ModelCall& call,
            const ModelInfo& info)
      : layers_(layers), kv_(kv), batch_(batch), call_(call), info_(info), edits_(call.edits, batch, info) {
    kept_.layers.resize(static_cast<std::size_t>(count));
    batch.kept = &kept_;
  }

  // Bytes: for all that is kept, of which a layer's streams are always.
  Tensor forward(std::int64_t memory) {
    const std::int64_t tokens = std::ssize(batch_.ids), count = std::ssize(kept_.layers);
    if (count > 0) {
      const std::int64_t layer = tokens * bytes_of_layer(layers_.parts(0), kv_, info_.dtype);
      kept_.whole_from = static_cast<std::size_t>(count - std::clamp<std::int64_t>(memory / layer, 0, count));
    }
    return run(layers_, count, batch_, call_, info_, nullptr);
  }

  // d [copies * N,E], of the hidden states' rows. What comes back to an encoder's states: memory().
  void back(const Tensor& d, const PassBack& asked) {
    const PlaceGradients at_place = [&](ModelPlace place, std::int64_t layer, Tensor& each) {
      asked.places(place, layer, each);
      check(place, each);
      const std::int64_t rows = each.size(0) / asked.copies;
      for (std::int64_t c = 0; c < asked.copies; ++c)
        edits_.back(place, layer, each.view().slice(0, c * rows, (c + 1) * rows));
    };
    const Batch rows = rows_from(batch_, asked.first_row);
    kept_.last = rows_from(std::move(kept_.last), asked.first_row);
    Backward pass(rows, kept_, asked.copies, at_place, asked.attentions);
    Tensor dx = layers_.finish_backward(pass, d);
    pass.at(ModelPlace::residual, kept_.layers.size(), dx);
    for (auto n = kept_.layers.size(); n-- > static_cast<std::size_t>(asked.first_layer);) {
      if (n < kept_.whole_from) make_again(n);
      keep_rows_from(kept_.layers[n], asked.first_row);
      layers_.backward(pass, dx, static_cast<std::int64_t>(n), static_cast<std::int64_t>(n) + 1);
      kept_.layers[n] = {};
    }
    if (asked.first_layer == 0) layers_.embed_backward(pass, dx);
    memory_ = std::move(pass.memory());
  }
  Tensor& memory() { return memory_; }

 private:
  // The edits of a layer whose stream has been through those of its own place.
  class Again : public Watcher {
   public:
    explicit Again(Edits& edits) : edits_(edits) {}
    void at(ModelPlace place, std::int64_t layer, const MutableView& values) override {
      if (place != ModelPlace::residual && place != ModelPlace::encoder_residual) edits_.at(place, layer, values);
    }

   private:
    Edits& edits_;
  };

  static Batch rows_from(const Batch& batch, std::int64_t first) {
    Batch rows = batch;
    if (first == 0) return rows;
    rows.ids = rows.ids.subspan(static_cast<std::size_t>(first));
    rows.positions = {batch.positions.end() - std::ssize(rows.ids), batch.positions.end()};
    rows.starts = {0, std::ssize(rows.ids)};
    return rows;
  }
  static Tensor rows_from(Tensor x, std::int64_t first, int axis = 0) {
    return first == 0 || x.count() == 0 ? std::move(x) : x.view().slice(axis, first, x.size(axis)).clone();
  }
  // Keys and values stay: later rows look at those of all.
  static void keep_rows_from(KeptLayer& layer, std::int64_t first) {
    for (Tensor* each : {&layer.residual, &layer.residual_mid, &layer.q, &layer.k, &layer.self.q, &layer.self.out,
                         &layer.mlp.x, &layer.mlp.gated})
      *each = rows_from(std::move(*each), first);
    for (Tensor* each : {&layer.self.lse, &layer.self.lse_low}) *each = rows_from(std::move(*each), first, 2);
    for (Tensor& each : layer.before_norm) each = rows_from(std::move(each), first);
  }

  void make_again(std::size_t layer) {
    Again again(edits_);
    batch_.watcher = call_.edits.empty() ? nullptr : &again;
    kept_.whole_from = layer;
    Tensor x = kept_.layers[layer].residual.clone();
    layers_.run(batch_, x, static_cast<std::int64_t>(layer), static_cast<std::int64_t>(layer) + 1);
    batch_.watcher = nullptr;
  }

  // Of the stream, which all gradients come to; before an edit that sets what is there makes them 0.
  static void check(ModelPlace place, const Tensor& d) {
    const ModelPlace of_stream[] = {ModelPlace::residual, ModelPlace::embeddings, ModelPlace::encoder_residual,
                                    ModelPlace::encoder_embeddings};
    if (std::ranges::find(of_stream, place) == std::end(of_stream)) return;
    const float* values = d.data<float>();
    if (std::all_of(values, values + d.count(), [](float value) { return std::isfinite(value); })) return;
    fail(ErrorCode::bad_value, pass_back_function, "the gradients at {} have NaN or infinity", name_of(place));
  }

  const Layers& layers_;
  std::int64_t kv_;
  Batch& batch_;
  const ModelCall& call_;
  const ModelInfo& info_;
  Edits edits_;
  Kept kept_ = {};
  Tensor memory_;
};

template <class Of>
void back_of_one(const Of& family, std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info,
                 const PassBack& back) {
  Batch batch = batch_of(ids, call, info);
  StackBack stack(family, info.layers, info.kv_heads * info.head_size, batch, call, info);
  const Tensor hidden = stack.forward(back.memory);
  stack.back(back.from(hidden), back);
}

template <class Of>
void back_of_both(const Of& family, std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info,
                  const PassBack& back) {
  Batch batch = encoder_batch_of(ids, call, info);
  StackBack encoder(family.encoder(), info.encoder_layers, info.encoder_heads * info.encoder_head_size, batch, call,
                    info);
  if (call.decoder_ids.empty()) {
    const Tensor hidden = encoder.forward(back.memory);
    return encoder.back(back.from(hidden), back);
  }
  Batch decoder_batch = decoder_batch_of(call, info);
  if (batch.sequences() != decoder_batch.sequences())
    fail(ErrorCode::bad_value, pass_back_function, "decoder_ids have {} sequences, expected {}, as ids have",
         decoder_batch.sequences(), batch.sequences());
  const Memory memory{encoder.forward(back.memory / 2), batch.starts};
  decoder_batch.memory = &memory;
  StackBack decoder(family.decoder(), info.layers, info.kv_heads * info.head_size, decoder_batch, call, info);
  const Tensor hidden = decoder.forward(back.memory / 2);
  decoder.back(back.from(hidden), back);
  Tensor d = std::move(decoder.memory());
  if (d.count() == 0) d = Tensor({back.copies * memory.states.size(0), memory.states.size(1)});  // no layer read it
  encoder.back(d, back);
}

void check_call(const ModelCall& call) {
  if (!call.caches.empty())
    fail(ErrorCode::bad_value, pass_back_function, "a backward pass needs the whole text and takes no caches");
  if (!call.knockouts.empty()) fail(ErrorCode::bad_value, pass_back_function, "a backward pass takes no knockouts");
  if (call.recorder) fail(ErrorCode::bad_value, pass_back_function, "a backward pass takes no recorder");
}

}  // namespace

void pass_back(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call, const PassBack& back) {
  check_call(call);
  const Model::Parts& parts = ModelAccess::parts(model);
  const MemoryReuse reuse;  // one layer's tensors are as large as the next one's
  std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.encoder(); })
          back_of_both(family, ids, call, parts.info, back);
        else
          back_of_one(family, ids, call, parts.info, back);
      },
      parts.family);
}

KeptBytes kept_bytes(const Model& model, std::int64_t tokens, std::int64_t decoder_tokens) {
  const Model::Parts& parts = ModelAccess::parts(model);
  const ModelInfo& info = parts.info;
  KeptBytes sum;
  const auto add = [&](std::int64_t layers, std::int64_t rows, std::int64_t kv, bool encoder) {
    if (layers == 0) return;
    sum.all += layers * rows * bytes_of_layer(parts_of_layer(parts, 0, encoder), kv, info.dtype);
    sum.streams += layers * rows * info.embedding_size * 4;
  };
  if (info.encoder_decoder()) add(info.encoder_layers, tokens, info.encoder_heads * info.encoder_head_size, true);
  add(info.layers, info.encoder_decoder() ? decoder_tokens : tokens, info.kv_heads * info.head_size, false);
  return sum;
}

}  // namespace attend::inline v1::models
