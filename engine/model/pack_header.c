#include "engine/model/pack_header.h"

#include <string.h>
#include <xxhash.h>

enum {
    MAGIC_BYTES = 8,
    DIGEST_BYTES = 32,
    VERSION_OFFSET = 8,
    DIGEST_OFFSET = 40,
    FIXED_BYTES = 128,
    SECTION_RECORD_BYTES = 24,
    TENSOR_RECORD_BYTES = 64,
    TENSOR_CHECKSUM_OFFSET = 48, /* within its record */
    HEADER_CHECKSUM_BYTES = 8    /* the header's last bytes */
};

/* Not text, and damaged by anything that changes line ends. */
static const unsigned char magic[MAGIC_BYTES] = {0x93, 'N', 'J', 'P', 'K', '\r', '\n', 0x1a};

static void put_u32(unsigned char **at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        *(*at)++ = (unsigned char)(value >> (8 * i));
}

static void put_u64(unsigned char **at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        *(*at)++ = (unsigned char)(value >> (8 * i));
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

uint64_t pack_header_bytes(int sections, int tensors)
{
    uint64_t bytes = FIXED_BYTES + (uint64_t)sections * SECTION_RECORD_BYTES + (uint64_t)tensors * TENSOR_RECORD_BYTES +
                     HEADER_CHECKSUM_BYTES;
    return (bytes + NJ_PACK_ALIGNMENT - 1) / NJ_PACK_ALIGNMENT * NJ_PACK_ALIGNMENT;
}

static size_t section_record_offset(int index)
{
    return FIXED_BYTES + (size_t)index * SECTION_RECORD_BYTES;
}

static size_t tensor_record_offset(const struct nj_pack_layout *layout, int index)
{
    return section_record_offset(layout->section_count) + (size_t)index * TENSOR_RECORD_BYTES;
}

static void put_section(unsigned char *at, const struct nj_pack_section *section)
{
    put_u64(&at, section->offset);
    put_u64(&at, section->bytes);
    put_u32(&at, (uint32_t)section->first_tensor);
    put_u32(&at, (uint32_t)section->tensors);
}

static void put_tensor(unsigned char *at, const struct nj_pack_tensor *tensor)
{
    put_u32(&at, (uint32_t)tensor->slot);
    put_u32(&at, (uint32_t)tensor->layer);
    put_u32(&at, (uint32_t)tensor->kind);
    put_u32(&at, (uint32_t)tensor->is_vector);
    put_u64(&at, (uint64_t)tensor->rows);
    put_u64(&at, (uint64_t)tensor->cols);
    put_u64(&at, tensor->offset);
    put_u64(&at, tensor->bytes);
    put_u64(&at, tensor->checksum);
}

static uint64_t header_checksum(const unsigned char *header, uint64_t bytes)
{
    return XXH3_64bits(header, (size_t)bytes - HEADER_CHECKSUM_BYTES);
}

void pack_header_write(const struct nj_pack_layout *layout, const char *digest, unsigned char *out)
{
    memset(out, 0, layout->header_bytes);
    memcpy(out, magic, MAGIC_BYTES);
    unsigned char *at = out + VERSION_OFFSET;
    put_u32(&at, NJ_PACK_VERSION);
    put_u32(&at, (uint32_t)layout->section_count);
    put_u32(&at, (uint32_t)layout->tensor_count);
    put_u32(&at, 0);
    put_u64(&at, layout->header_bytes);
    put_u64(&at, layout->file_bytes);
    memcpy(out + DIGEST_OFFSET, digest, DIGEST_BYTES);
    for (int i = 0; i < layout->section_count; i++)
        put_section(out + section_record_offset(i), &layout->sections[i]);
    for (int i = 0; i < layout->tensor_count; i++)
        put_tensor(out + tensor_record_offset(layout, i), &layout->tensors[i]);
    unsigned char *end = out + layout->header_bytes - HEADER_CHECKSUM_BYTES;
    put_u64(&end, header_checksum(out, layout->header_bytes));
}

const char *pack_header_check(struct nj_pack_layout *layout, const char *digest, const unsigned char *header,
                              unsigned char *scratch)
{
    if (memcmp(header, magic, MAGIC_BYTES) != 0)
        return "it does not begin as a pack does";
    if (get_u64(header + layout->header_bytes - HEADER_CHECKSUM_BYTES) != header_checksum(header, layout->header_bytes))
        return "the checksum of its header does not match";
    if (memcmp(header + DIGEST_OFFSET, digest, DIGEST_BYTES) != 0)
        return "it belongs to another model";
    for (int i = 0; i < layout->tensor_count; i++)
        layout->tensors[i].checksum = get_u64(header + tensor_record_offset(layout, i) + TENSOR_CHECKSUM_OFFSET);
    pack_header_write(layout, digest, scratch);
    return memcmp(header, scratch, layout->header_bytes) == 0 ? NULL : "another version of nightjar wrote it";
}
