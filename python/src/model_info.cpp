// attend.ModelInfo.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "dtypes.h"
#include "generation.h"
#include "model.h"
#include "pickle.h"

namespace attend::python {

void bind_model_info(nb::module_& m) {
  nb::class_<ModelInfo> info(m, "ModelInfo", "What a model is, as its config.json has it: Model.info.");
  copies_are_itself(info);
  refuses_pickle(info, "it belongs to a model: pickle the model, and ask that for info");
  info.def_ro("type", &ModelInfo::type, "its model_type: 'bert', 'qwen2', ...")
      .def_prop_ro(
          "family", [](const ModelInfo& self) { return std::string(name_of(self.family)); },
          "how it computes: 'bert', 'gpt2', 'llama', ...: docs/models.md has them all")
      .def_prop_ro("decoder", &ModelInfo::decoder, "whether it writes: it answers with a next token")
      .def_prop_ro("encoder_decoder", &ModelInfo::encoder_decoder,
                   "whether its decoder reads what an encoder made of another text")
      .def_ro("encoder_layers", &ModelInfo::encoder_layers,
              "layers of an encoder-decoder's encoder; else 0, and so are the next")
      .def_ro("encoder_heads", &ModelInfo::encoder_heads, "heads of a layer of its encoder")
      .def_ro("encoder_head_size", &ModelInfo::encoder_head_size, "head size D of its encoder")
      .def_ro("encoder_vocabulary", &ModelInfo::encoder_vocabulary, "how many ids its encoder knows")
      .def_prop_ro(
          "start",
          [](const ModelInfo& self) {
            return self.start < 0 ? nb::object(nb::none()) : nb::object(nb::int_(self.start));
          },
          nb::sig("def start(self) -> int | None"), "the id that its decoder's text begins with, or None")
      .def_ro("layers", &ModelInfo::layers, "how many")
      .def_ro("heads", &ModelInfo::heads, "query heads of a layer")
      .def_ro("kv_heads", &ModelInfo::kv_heads, "key and value heads of a layer")
      .def_ro("head_size", &ModelInfo::head_size, "D")
      .def_ro("embedding_size", &ModelInfo::embedding_size, "E")
      .def_ro("mlp_size", &ModelInfo::mlp_size, "F, hidden units of a layer's MLP")
      .def_ro("encoder_mlp_size", &ModelInfo::encoder_mlp_size, "F in its encoder")
      .def_ro("input_size", &ModelInfo::input_size,
              "size of an id's row in the table of embeddings: E, except in ALBERT, ELECTRA and OPT-350m")
      .def_ro("parallel", &ModelInfo::parallel, "whether attention and MLP read the same stream (Pythia)")
      .def_ro("vocabulary", &ModelInfo::vocabulary, "how many ids there are")
      .def_ro("longest", &ModelInfo::longest, "tokens of a sequence, at most")
      .def_ro("parameters", &ModelInfo::parameters,
              "how many numbers its weights are; embeddings that are also the output's weights count once")
      .def_prop_ro(
          "dtype", [](const ModelInfo& self) { return python_name(self.dtype); },
          "the dtype that it computes in: 'float32' or 'bfloat16'")
      .def_prop_ro(
          "activations", [](const ModelInfo& self) { return nb::str(name_of(self.activations).data()); },
          nb::sig("def activations(self) -> Literal['exact', 'fast', 'int8']"),
          "what its layers multiply their weights by, as given to load()")
      .def_ro("formats", &ModelInfo::formats,
              "the types of the weights in its file, the one with the most bytes first: 'f32', 'Q4_1', ...")
      .def_ro("weight_bytes", &ModelInfo::weight_bytes,
              "bytes of its matrices as it computes with them. Quantized ones count as in the file, unless load() was "
              "given a dtype; those that int8 activations round take 34 bytes for 32 numbers")
      .def_ro("end", &ModelInfo::end, "the ids that end a text; empty for encoders")
      .def_prop_ro(
          "generation", [](const ModelInfo& self) { return settings_dict(self.generation); },
          nb::sig("def generation(self) -> dict[str, Any]"),
          "the settings of generate() that generation_config.json says, by name")
      .def_ro("not_followed", &ModelInfo::not_followed,
              "what generation_config.json asks for that generate() does not follow, such as 'num_beams 4'")
      .def_prop_ro(
          "head",
          [](const ModelInfo& self) {
            return self.head.empty() ? nb::object(nb::none())
                                     : nb::object(nb::str(self.head.c_str(), self.head.size()));
          },
          nb::sig("def head(self) -> str | None"),
          "a task's layers after the model: 'SequenceClassification', ...; or None. If task is None, they are left out")
      .def_prop_ro(
          "task",
          [](const ModelInfo& self) {
            return self.task ? nb::object(nb::str(name_of(*self.task).data(), name_of(*self.task).size()))
                             : nb::object(nb::none());
          },
          nb::sig("def task(self) -> Literal['classify', 'tag', 'fill'] | None"),
          "what the head is for: the name of the method that answers it; or None")
      .def_ro("labels", &ModelInfo::labels, "the labels of classify() and tag(), as in id2label")
      .def_prop_ro(
          "vectors", [](const ModelInfo& self) { return nb::str(name_of(self.vectors).data()); },
          nb::sig("def vectors(self) -> Literal['sentence', 'token', 'sparse']"),
          "what a text becomes: \"sentence\", a vector (embed()); \"token\", one for each token (embed_tokens()); "
          "\"sparse\", weights "
          "of words (embed_sparse())")
      .def_ro("embeds", &ModelInfo::embeds, "whether embed() can make the embeddings that the folder describes")
      .def_ro("vector_size", &ModelInfo::vector_size, "V, how many numbers a vector has; 0: it makes none")
      .def_ro("max_seq_length", &ModelInfo::max_seq_length, "tokens of a sentence that embed() takes, at most")
      .def_ro("prompts", &ModelInfo::prompts, "prompts to put before each sentence, by the names that embed() takes")
      .def("__repr__", [](const ModelInfo& self) {
        return "ModelInfo(type='" + self.type + "', layers=" + std::to_string(self.layers) +
               ", heads=" + std::to_string(self.heads) + ", embedding_size=" + std::to_string(self.embedding_size) +
               ", parameters=" + std::to_string(self.parameters) + ", dtype='" + python_name(self.dtype) + "'" +
               (self.activations == Activations::exact
                    ? ""
                    : ", activations='" + std::string(name_of(self.activations)) + "'") +
               ")";
      });
}

}  // namespace attend::python
