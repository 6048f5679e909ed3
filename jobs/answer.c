#include "jobs/answer.h"

#include <inttypes.h>
#include <stdint.h>

#include "jobs/console.h"

enum { PROMPT_LINES = 6, PROMPT_BYTES = 600 };

/* The text, each line indented, and how much was left out where that is more than `lines` lines or `bytes` bytes. */
static void answer_print_text(struct nj_text text, size_t lines, size_t bytes, FILE *to)
{
    size_t at = 0;
    while (text.length > 0 && text.bytes[text.length - 1] == '\n')
        text.length--;
    while (at < text.length && lines > 0 && at < bytes) {
        char shown[NJ_SHOWN_CHARACTER_BYTES];
        fputs("  ", to);
        while (at < text.length && text.bytes[at] != '\n' && at < bytes) {
            at += console_escape_character(text.bytes + at, text.length - at, shown);
            fputs(shown, to);
        }
        at += at < text.length && text.bytes[at] == '\n';
        lines--;
        fputc('\n', to);
    }
    if (at < text.length)
        fprintf(to, "  ... (%zu more bytes)\n", text.length - at);
}

void answer_print(const struct nj_job_answer *answer, FILE *to)
{
    char id[4 * 512 + 1];
    console_escape(answer->id, id, sizeof id);
    if (answer->index == 0) {
        fprintf(to, "request %s (%" PRId32 " tokens)\n", id, answer->prompt_tokens);
        answer_print_text(answer->prompt, PROMPT_LINES, PROMPT_BYTES, to);
    }
    fputs("answer ", to);
    if (answer->count > 1)
        fprintf(to, "%" PRId32 " of %" PRId32 " ", answer->index + 1, answer->count);
    fprintf(to, "(%" PRId32 " tokens, %s)\n", answer->new_tokens, answer->finish_reason);
    answer_print_text(answer->text, SIZE_MAX, SIZE_MAX, to);
    fputc('\n', to);
}
