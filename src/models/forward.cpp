#include <algorithm>
#include <functional>
#include <utility>

#include "core/message.h"
#include "core/parallel.h"
#include "core/tensor_memory.h"
#include "layers/rows.h"
#include "models/edits.h"
#include "models/knockouts.h"
#include "models/model.h"
#include "models/stack_pass.h"

namespace attend::inline v1 {

using models::Batch;
using models::Stack;

namespace {

constexpr const char* forward_function = "Model";

void check_caches(const ModelCall& call, const Batch& batch, const ModelInfo& info) {
  models::check_decoder(info, "Model.forward", "caches: ");
  if (std::ssize(call.caches) != batch.sequences()) {
    fail(ErrorCode::bad_value, forward_function, "{} caches, expected one for each of {} sequences", call.caches.size(),
         batch.sequences());
  }
  for (std::size_t s = 0; s < call.caches.size(); ++s) {
    if (!call.caches[s]) fail(ErrorCode::bad_value, forward_function, "caches[{}] is null", s);
    if (std::ranges::count(call.caches, call.caches[s]) > 1)
      fail(ErrorCode::bad_value, forward_function, "caches[{}] comes twice", s);
    if (call.caches[s]->activations() != info.activations)
      fail(ErrorCode::bad_value, forward_function,
           "caches[{}] was made by a model whose activations are {}, and here they are {}", s,
           name_of(call.caches[s]->activations()), name_of(info.activations));
  }
}

// Each id's position in its sequence, of which a cache may have the beginning.
void place(Batch& batch, std::span<ModelCache* const> caches, const ModelInfo& info) {
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const std::int64_t count = batch.starts[s + 1] - batch.starts[s], before = caches.empty() ? 0 : caches[s]->length();
    if (count > info.longest - before)
      fail(ErrorCode::bad_value, forward_function, "a sequence of {} tokens, the model takes at most {}",
           before + count, info.longest);
    for (std::int64_t n = 0; n < count; ++n) batch.positions.push_back(before + n);
  }
}

void check_recorder(const Batch& batch) {
  if (batch.recorder && batch.sequences() > 1)
    fail(ErrorCode::bad_value, forward_function, "{} sequences, a recorder takes one", batch.sequences());
}

}  // namespace

namespace models {

void check_ids(std::string_view name, std::span<const std::int64_t> ids, std::int64_t vocabulary) {
  if (ids.empty()) fail(ErrorCode::bad_value, forward_function, "there are no {}, expected at least one", name);
  for (std::size_t n = 0; n < ids.size(); ++n) {
    if (ids[n] < 0 || ids[n] >= vocabulary)
      fail(ErrorCode::bad_value, forward_function, "{}[{}] is {}, expected 0 to {}", name, n, ids[n], vocabulary - 1);
  }
}

std::vector<std::int64_t> checked_starts(std::string_view name, std::span<const std::int64_t> starts,
                                         std::int64_t count) {
  if (starts.empty()) return {0, count};
  const bool rises = std::ranges::adjacent_find(starts, std::greater_equal<>()) == starts.end();
  if (starts.size() < 2 || starts.front() != 0 || starts.back() != count || !rises)
    fail(ErrorCode::bad_value, forward_function, "{} must rise from 0 to the number of ids, {}", name, count);
  return {starts.begin(), starts.end()};
}

Batch batch_of(std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info) {
  check_ids("ids", ids, info.vocabulary);
  if (!call.decoder_ids.empty())
    fail(ErrorCode::bad_value, forward_function, "decoder_ids need an encoder-decoder, the model is of type {}",
         info.type);
  Batch batch{.ids = ids,
              .starts = checked_starts("starts", call.starts, std::ssize(ids)),
              .positions = {},
              .types = call.types,
              .recorder = call.recorder,
              .activations = info.activations};
  if (!call.types.empty() && call.types.size() != ids.size())
    fail(ErrorCode::bad_value, forward_function, "{} types for {} ids", call.types.size(), ids.size());
  if (!call.types.empty() && info.decoder())
    fail(ErrorCode::bad_value, forward_function, "types are for BERT-like encoders, the model is of type {}",
         info.type);
  check_recorder(batch);
  if (!call.caches.empty()) check_caches(call, batch, info);
  place(batch, call.caches, info);
  return batch;
}

Batch encoder_batch_of(std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info) {
  check_ids("ids", ids, info.encoder_vocabulary);
  if (!call.types.empty())
    fail(ErrorCode::bad_value, forward_function, "types are for BERT-like encoders, the model is of type {}",
         info.type);
  Batch batch{.ids = ids,
              .starts = checked_starts("starts", call.starts, std::ssize(ids)),
              .positions = {},
              .types = {},
              .recorder = call.recorder,
              .stack = Stack::encoder,
              .activations = info.activations};
  check_recorder(batch);
  place(batch, {}, info);
  return batch;
}

Batch decoder_batch_of(const ModelCall& call, const ModelInfo& info) {
  check_ids("decoder_ids", call.decoder_ids, info.vocabulary);
  Batch batch{.ids = call.decoder_ids,
              .starts = checked_starts("decoder_starts", call.decoder_starts, std::ssize(call.decoder_ids)),
              .positions = {},
              .types = {},
              .recorder = call.recorder,
              .stack = Stack::decoder,
              .activations = info.activations};
  check_recorder(batch);
  if (!call.caches.empty()) check_caches(call, batch, info);
  place(batch, call.caches, info);
  return batch;
}

}  // namespace models

namespace {

// The caches of a call as the layers find them.
class CallCaches {
 public:
  CallCaches(std::span<ModelCache* const> caches, const ModelInfo& info) : caches_(caches) {
    for (ModelCache* cache : caches) {
      const auto layers = std::ssize(ModelAccess::layers(*cache)), cross = std::ssize(ModelAccess::cross(*cache));
      if (layers != info.layers || cross != (info.encoder_decoder() ? layers : 0))
        fail(ErrorCode::bad_value, forward_function,
             "a cache has {} layers, {} of them for an encoder's text, expected {} and {}", layers, cross, info.layers,
             info.encoder_decoder() ? info.layers : 0);
      lengths_.push_back(cache->length());
      encoder_lengths_.push_back(cache->encoder_length());
    }
  }
  // The call has failed: what the layers so far have added is taken back.
  void undo() {
    for (std::size_t s = 0; s < caches_.size(); ++s) {
      forget(ModelAccess::layers(*caches_[s]), ModelAccess::ids(*caches_[s]), lengths_[s]);
      forget(ModelAccess::cross(*caches_[s]), ModelAccess::encoder_ids(*caches_[s]), encoder_lengths_[s]);
    }
  }

  // Whether they have the encoder's text, all of them. Throws bad_value where some do.
  bool have_read() const {
    const auto count = std::ranges::count_if(encoder_lengths_, [](std::int64_t length) { return length > 0; });
    if (count != 0 && count != std::ssize(caches_))
      fail(ErrorCode::bad_value, forward_function, "{} of {} caches have an encoder's text, expected all or none",
           count, caches_.size());
    return count > 0;
  }

  void lend(Batch& batch) {
    if (caches_.empty()) return;
    lend(ModelAccess::layers, batch.layers);
    lend(ModelAccess::cross, batch.cross);
    batch.recorded_ids = ModelAccess::ids(*caches_[0]);
  }

  // The call has come to its end: they have these ids too.
  void keep(const Batch& batch) {
    const bool encoder = batch.stack == Stack::encoder;
    for (std::size_t s = 0; s < caches_.size(); ++s) {
      std::vector<std::int64_t>& ids = encoder ? ModelAccess::encoder_ids(*caches_[s]) : ModelAccess::ids(*caches_[s]);
      ids.insert(ids.end(), batch.ids.begin() + batch.starts[s], batch.ids.begin() + batch.starts[s + 1]);
    }
  }

 private:
  void lend(std::vector<KvCache>& (*of)(ModelCache&), std::vector<std::vector<KvCache*>>& layers) {
    layers.resize(of(*caches_[0]).size());
    for (ModelCache* cache : caches_)
      for (std::size_t l = 0; l < layers.size(); ++l) layers[l].push_back(&of(*cache)[l]);
  }

  static void forget(std::vector<KvCache>& layers, std::vector<std::int64_t>& ids, std::int64_t length) {
    for (KvCache& layer : layers) layer.truncate(std::min(length, layer.length()));
    ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(length, std::ssize(ids))));
  }

  std::span<ModelCache* const> caches_;
  std::vector<std::int64_t> lengths_, encoder_lengths_;  // before the call
};

template <class Body>
Tensor undone_if_it_fails(CallCaches& caches, Body body) {
  try {
    return body();
  } catch (...) {
    caches.undo();
    throw;
  }
}

template <class Of>
Tensor forward_one(const Of& family, std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info,
                   models::Watcher* watcher) {
  Batch batch = models::batch_of(ids, call, info);
  CallCaches caches(call.caches, info);
  caches.lend(batch);
  return undone_if_it_fails(caches, [&] {
    Tensor hidden = models::run(family, info.layers, batch, call, info, watcher);
    caches.keep(batch);
    return hidden;
  });
}

// The stack that an edit is of must be run by the call.
void check_edits(std::span<const Edit> edits, bool encodes, bool decodes) {
  for (const Edit& edit : edits) {
    const bool encoder = models::is_of_encoder(edit.at);
    if (encoder ? encodes : decodes) continue;
    fail(ErrorCode::bad_value, forward_function, "an edit at {} has no effect: the call does not run the {}",
         name_of(edit.at), encoder ? "encoder: the cache has its text" : "decoder: there are no decoder_ids");
  }
}

template <class Of>
Tensor forward_both(const Of& family, std::span<const std::int64_t> ids, const ModelCall& call, const ModelInfo& info,
                    models::Watcher* watcher) {
  CallCaches caches(call.caches, info);
  const bool encodes = !caches.have_read(), decodes = !call.decoder_ids.empty();
  if (!encodes && !ids.empty())
    fail(ErrorCode::bad_value, forward_function,
         "got {} ids, expected none: the caches have the encoder's text already", ids.size());
  if (!decodes && !call.caches.empty())
    fail(ErrorCode::bad_value, forward_function, "a cache needs decoder_ids, whose keys and values it keeps");
  check_edits(call.edits, encodes, decodes);
  Batch encoder, decoder;
  models::Memory memory;
  if (encodes) encoder = models::encoder_batch_of(ids, call, info);
  if (decodes) decoder = models::decoder_batch_of(call, info);
  if (encodes && decodes && encoder.sequences() != decoder.sequences())
    fail(ErrorCode::bad_value, forward_function, "decoder_ids have {} sequences, expected {}, as ids have",
         decoder.sequences(), encoder.sequences());
  if (encodes) {
    memory = {models::run(family.encoder(), info.encoder_layers, encoder, call, info, watcher), encoder.starts};
    if (!decodes) return std::move(memory.states);
    decoder.memory = &memory;
  }
  caches.lend(decoder);
  return undone_if_it_fails(caches, [&] {
    Tensor hidden = models::run(family.decoder(), info.layers, decoder, call, info, watcher);
    caches.keep(decoder);
    if (encodes) caches.keep(encoder);
    return hidden;
  });
}

}  // namespace

Tensor ModelAccess::text_states(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call) {
  const Model::Parts& parts = *model.parts_;
  if (!parts.info.encoder_decoder() || !parts.head || ids.empty()) return forward(model, ids, call, nullptr);
  if (!call.decoder_ids.empty())
    fail(ErrorCode::bad_value, forward_function, "got {} decoder_ids, expected none: a task's head makes them from ids",
         call.decoder_ids.size());
  const std::vector<std::int64_t> starts = models::checked_starts("starts", call.starts, std::ssize(ids));
  const std::vector<std::int64_t> decoder_ids = parts.head->decoder_ids(ids, starts);
  ModelCall both = call;
  both.decoder_ids = decoder_ids, both.decoder_starts = starts;
  return forward(model, ids, both, nullptr);
}

Tensor ModelAccess::first_rows(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call) {
  const auto* bert = std::get_if<models::Bert>(&model.parts_->family);
  if (!bert || !bert->takes_first_rows()) {
    const std::vector<std::int64_t> starts = models::checked_starts("starts", call.starts, std::ssize(ids));
    return rows_at(forward(model, ids, call, nullptr), std::span(starts).first(starts.size() - 1));
  }
  const MemoryReuse reuse;
  Batch batch = models::batch_of(ids, call, model.info());
  batch.first_rows = true;
  return models::run(*bert, model.info().layers, batch, call, model.info(), nullptr);
}

Tensor ModelAccess::forward(const Model& model, std::span<const std::int64_t> ids, const ModelCall& call,
                            models::Watcher* watcher) {
  const Model::Parts& parts = *model.parts_;
  const MemoryReuse reuse;  // one layer's tensors are as large as the next one's
  const WarmThreads warm;
  return std::visit(
      [&](const auto& family) {
        if constexpr (requires { family.encoder(); })
          return forward_both(family, ids, call, parts.info, watcher);
        else
          return forward_one(family, ids, call, parts.info, watcher);
      },
      parts.family);
}

}  // namespace attend::inline v1
