#include "engine/tokenizer/byte_level.h"

/* The bytes that are not printable in Latin-1: 00..20, 7F..A0 and AD. */
enum {
    FIRST_RUN = 0x21,
    SECOND_RUN_BEGIN = 0x7F,
    SECOND_RUN = 0xA1 - SECOND_RUN_BEGIN,
    SOFT_HYPHEN = 0xAD,
};

int byte_level_to_byte(uint32_t code_point)
{
    if (code_point < 0x100) {
        int hidden = code_point < FIRST_RUN ||
                     (code_point >= SECOND_RUN_BEGIN && code_point < SECOND_RUN_BEGIN + SECOND_RUN) ||
                     code_point == SOFT_HYPHEN;
        return hidden ? -1 : (int)code_point;
    }
    uint32_t number = code_point - 0x100;
    if (number < FIRST_RUN)
        return (int)number;
    if (number < FIRST_RUN + SECOND_RUN)
        return (int)(number - FIRST_RUN + SECOND_RUN_BEGIN);
    return number == FIRST_RUN + SECOND_RUN ? SOFT_HYPHEN : -1;
}
