#include "attend/models.h"
#include "bindings.h"
#include "call.h"
#include "text.h"

namespace nb = nanobind;

namespace attend::python {

namespace {

constexpr const char* quantize_doc =
    R"(Write a model to a GGUF file, which Model.load() and llama.cpp open. It holds all that the model's folder says.

model: what Model.load() takes: a folder of the types llama, mistral, qwen2, qwen3, smollm3, gemma2, gemma3_text, phi3, gpt2, bert,
xlm-roberta, distilbert or modernbert, or a .gguf file in F32, F16 or BF16.
type: "q8_0", "q6_k", "q5_k_m", "q4_k_m" or "q4_0", from the largest file with the least error to the smallest.

Each tensor gets the type that llama.cpp's quantizer gives it. Some have more bits. Those whose rows are no multiple of 256 have
blocks of 32 numbers, and matrices whose rows are no multiple of 32 become F16. Norms, biases and tables of positions stay F32. The
file appears once it is complete. Raises OSError, also for what a GGUF file can't say: a tokenizer or a configuration that would be
read as another one.

>>> attend.quantize("tiny", "tiny.gguf", "q8_0")  # doctest: +SKIP
>>> attend.Model.load("tiny.gguf").info.type  # doctest: +SKIP
'llama')";

void quantize_(nb::handle model, nb::handle out, nb::handle type) {
  constexpr const char* function = "quantize";
  const std::string from = path_of(model), to = path_of(out), name = text_of(type);
  const std::optional<QuantizedType> known = file_type_named(name);
  if (!known)
    throw Error(ErrorCode::bad_value, function,
                "type is " + repr_of(type) + ", expected 'q8_0', 'q6_k', 'q5_k_m', 'q4_k_m' or 'q4_0'");
  call(function, [&] { quantize(from, to, *known); });
}

}  // namespace

void bind_quantize(nb::module_& m) {
  m.def("quantize", &quantize_, nb::arg("model").none(), nb::arg("out").none(), nb::arg("type") = "q8_0",
        nb::sig("def quantize(model: str | os.PathLike[str] | bytes, out: str | os.PathLike[str] | bytes, type: "
                "Literal['q8_0', 'q6_k', 'q5_k_m', 'q4_k_m', 'q4_0'] = 'q8_0') -> None"),
        quantize_doc);
}

}  // namespace attend::python
