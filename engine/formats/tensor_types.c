#include "engine/formats/tensor_types.h"

#include "engine/base/checked.h"
#include "engine/formats/converters.h"

static const struct nj_tensor_type TYPES[] = {
    {"F32", 0, 1, 4, NJ_KIND_F32, converter_f32_strip, converter_f32_row},
    {"F16", 1, 1, 2, NJ_KIND_F16, converter_f16_strip, converter_f16_row},
    {"BF16", 30, 1, 2, NJ_KIND_BF16, converter_bf16_strip, converter_bf16_row},
    {"Q4_0", 2, 32, 18, NJ_KIND_U4_ZERO8, converter_q4_0_strip, converter_q4_0_row},
    {"Q4_1", 3, 32, 20, NJ_KIND_U4_MIN, converter_q4_1_strip, converter_q4_1_row},
    {"Q5_0", 6, 32, 22, NJ_KIND_U5_ZERO16, converter_q5_0_strip, converter_q5_0_row},
    {"Q5_1", 7, 32, 24, NJ_KIND_U5_MIN, converter_q5_1_strip, converter_q5_1_row},
    {"Q8_0", 8, 32, 34, NJ_KIND_S8, converter_q8_0_strip, converter_q8_0_row},
    {"Q4_K", 12, 256, 144, NJ_KIND_U4_SUPER, converter_q4_k_strip, converter_q4_k_row},
    {"Q5_K", 13, 256, 176, NJ_KIND_U5_SUPER, converter_q5_k_strip, converter_q5_k_row},
    {"Q6_K", 14, 256, 210, NJ_KIND_U6_SUPER, converter_q6_k_strip, converter_q6_k_row},
};

const struct nj_tensor_type *tensor_type_at(size_t index)
{
    return index < sizeof TYPES / sizeof *TYPES ? &TYPES[index] : NULL;
}

const struct nj_tensor_type *tensor_type_by_gguf_id(uint32_t id)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (TYPES[i].gguf_id == id)
            return &TYPES[i];
    return NULL;
}

size_t tensor_type_row_bytes(const struct nj_tensor_type *type, uint64_t cols)
{
    uint64_t bytes;
    if (cols % type->block_elements != 0 || !checked_mul(cols / type->block_elements, type->block_bytes, &bytes))
        return 0;
    return bytes;
}
