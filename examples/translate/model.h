// The Transformer of Vaswani et al. (2017), with layer norm before each sublayer (Xiong et al. 2020) and one embedding
// for both languages and for the output (Press and Wolf 2017): torch.nn.Transformer(norm_first=True, batch_first=True)
// between an nn.Embedding and its transpose.
//
// Sentences of a batch stand one after another, [T,E], without padding: attention's query_starts and key_starts keep
// them apart.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/layers.h"
#include "functions.h"
#include "tokenizer.h"

namespace translate {

using attend::TensorMap;

struct ModelSizes {
  std::int64_t vocabulary = 0;
  std::int64_t embedding = 128;  // E
  std::int64_t heads = 4;
  std::int64_t layers = 2;  // of the encoder, and of the decoder
  std::int64_t hidden = 512;
};

// With names and shapes as in torch: embedding.weight, and the state_dict of nn.Transformer. Attention and linear
// layers are drawn as torch's layers draw them, the embedding from N(0, 1/E).
TensorMap draw_parameters(const ModelSizes& sizes, attend::Generator& generator);

// Sentences one after another.
struct Sentences {
  Ids ids;
  std::vector<std::int64_t> starts{0};  // where each begins, and where the last one ends

  void append(std::span<const std::int64_t> sentence);
  std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
};

// With probability p, elements of the sublayers' outputs, of the embeddings and of the attention's weights are dropped.
struct Dropping {
  double p = 0;
  std::uint64_t seed = 0;
};

// What the forward of each part keeps for the backward: inputs and states of its layers, in the order of the
// computation.
struct NormState {
  LayerNormState norm;
  Tensor output;
};
struct AttentionState {
  NormState norm;
  attend::MultiHeadAttentionState attention;
};
struct FeedForwardState {
  NormState norm;
  Tensor hidden;
};
struct EncoderLayerState {
  AttentionState self;
  FeedForwardState feed_forward;
};
struct DecoderLayerState {
  AttentionState self;
  AttentionState cross;
  FeedForwardState feed_forward;
};
struct EncoderState {
  std::vector<EncoderLayerState> layers;
  NormState norm;  // its output is the memory
};
struct DecoderState {
  std::vector<DecoderLayerState> layers;
  NormState norm;
  std::vector<Tensor> weights;  // where they are asked for: of each layer's cross-attention [heads,Tq,Tk]
};

// Layers made of parameters. It borrows them: they must outlive it, unchanged.
class Model {
 public:
  // Throws bad_value for a parameter that is missing, bad_shape for one of another shape.
  Model(const TensorMap& parameters, const ModelSizes& sizes);

  // source -> memory [Tk,E], which is state.norm.output.
  void encode(const Sentences& source, const Dropping& dropping, EncoderState& state) const;
  // target, which begins with Tokenizer::begin -> what follows each of its tokens, as a row of [Tq,E]:
  // state.norm.output.
  void decode(const Sentences& target, const View& memory, const Sentences& source, const Dropping& dropping,
              DecoderState& state, bool keep_weights = false) const;
  // rows [...,E] -> logits [...,vocabulary]
  Tensor logits(const View& rows) const { return output_.forward(rows); }

  // dlogits [Tq,vocabulary] -> the gradients of all parameters, by name. The other arguments as they were in the
  // forward.
  TensorMap backward(const Tensor& dlogits, const Sentences& source, const Sentences& target, const Dropping& dropping,
                     const EncoderState& encoder, const DecoderState& decoder) const;

 private:
  struct Norm {
    std::string name;
    View weight, bias;
    void forward(const View& x, NormState& state) const;
    // Adds the parameters' gradients, and gives that of x.
    Tensor backward(const View& dy, const NormState& state, TensorMap& gradients) const;
  };
  // x += dropout(sublayer(norm(x))); backward turns the gradient of the new x into that of the old one.
  struct FeedForward {
    std::string name;
    Norm norm;
    attend::Linear first, second;
    void forward(Tensor& x, const Dropping& dropping, FeedForwardState& state) const;
    void backward(Tensor& dx, const Dropping& dropping, const FeedForwardState& state, TensorMap& gradients) const;
  };
  // Self-attention where there is no memory.
  struct Attention {
    std::string name;
    Norm norm;
    attend::MultiHeadAttention attention;
    std::optional<Tensor> forward(Tensor& x, const View* memory, const attend::MultiHeadAttentionCall& call,
                                  const Dropping& dropping, AttentionState& state) const;
    // Adds to the memory's gradient.
    void backward(Tensor& dx, const View* memory, Tensor* dmemory, const attend::MultiHeadAttentionCall& call,
                  const Dropping& dropping, const AttentionState& state, TensorMap& gradients) const;
  };
  struct EncoderLayer {
    Attention self;
    FeedForward feed_forward;
  };
  struct DecoderLayer {
    Attention self, cross;
    FeedForward feed_forward;
  };

  Tensor embed(const Sentences& sentences, const Dropping& dropping) const;
  // Adds to the embedding's gradient.
  void embed_backward(Tensor dx, const Sentences& sentences, const Dropping& dropping, Tensor& dweight) const;

  ModelSizes sizes_;
  attend::Embedding embedding_;
  attend::Linear output_;  // the embedding's weight
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_;
  Norm encoder_norm_, decoder_norm_;
};

}  // namespace translate
