// The table of model types, and the lists that have a row for each type of a family or of GGUF's architectures.
#include "models/model_types.h"

#include <set>

#include "models/families/llama_types.h"
#include "models/gguf/architecture.h"
#include "tests/expect.h"

namespace attend {
namespace {

using models::ModelType;
using test::expect_error;

ModelInfo of_family(ModelFamily family) {
  ModelInfo info;
  info.family = family;
  return info;
}

TEST(ModelTypes, EachFamilyIsAnEncoderADecoderOrBoth) {
  for (const ModelFamily encoder : {ModelFamily::bert, ModelFamily::modernbert, ModelFamily::t5_encoder,
                                    ModelFamily::llama_encoder, ModelFamily::static_table}) {
    EXPECT_FALSE(of_family(encoder).decoder()) << name_of(encoder);
    EXPECT_FALSE(of_family(encoder).encoder_decoder()) << name_of(encoder);
  }
  for (const ModelFamily decoder : {ModelFamily::gpt2, ModelFamily::llama, ModelFamily::gpt_neox, ModelFamily::opt}) {
    EXPECT_TRUE(of_family(decoder).decoder()) << name_of(decoder);
    EXPECT_FALSE(of_family(decoder).encoder_decoder()) << name_of(decoder);
  }
  for (const ModelFamily both : {ModelFamily::bart, ModelFamily::t5}) {
    EXPECT_TRUE(of_family(both).decoder()) << name_of(both);
    EXPECT_TRUE(of_family(both).encoder_decoder()) << name_of(both);
  }
}

TEST(ModelTypes, HaveOneRowEach) {
  std::set<std::string_view> names;
  for (const ModelType& type : models::model_types()) {
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
    EXPECT_EQ(&models::model_type(type.name), &type);
  }
  EXPECT_EQ(models::find_model_type("mamba"), nullptr);
  expect_error(ErrorCode::bad_value, [&] { (void)models::model_type("mamba"); });
}

TEST(ModelTypes, OfLlamasFamilySayInWhatTheyDiffer) {
  for (const ModelType& type : models::model_types()) {
    if (type.family == ModelFamily::llama) {
      EXPECT_EQ(models::llama_type(type.name).name, type.name);
    } else {
      expect_error(ErrorCode::bad_value, [&] { (void)models::llama_type(type.name); });
    }
  }
  expect_error(ErrorCode::bad_value, [&] { (void)models::llama_type(""); });
}

TEST(ModelTypes, WithAnArchitectureOfGgufAreWrittenAsOne) {
  for (const ModelType& type : models::model_types()) {
    const nlohmann::json name = type.name;
    const Member member({"quantize", "model_type"}, name);
    if (type.gguf.empty()) {
      expect_error(ErrorCode::bad_file, [&] { (void)models::gguf_architecture_of(member); });
    } else {
      EXPECT_EQ(models::gguf_architecture_of(member).name(), type.gguf);
    }
  }
}

}  // namespace
}  // namespace attend
