/* gzip streams and archives: what is read, what is passed over, what is refused. */
#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "pipeline/input/archive_reader.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

enum { TEXT_BYTES = 3000, PACKED_MOST = 8192 };

static char *directory, *path;
static char text[TEXT_BYTES];

static int make_directory(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "file");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i * i / 7 % 26);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

/* One gzip member. Returns its length. */
static size_t pack(const char *from, size_t length, char *to)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)from;
    stream.avail_in = (uInt)length;
    stream.next_out = (Bytef *)to;
    stream.avail_out = PACKED_MOST;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    deflateEnd(&stream);
    return PACKED_MOST - stream.avail_out;
}

/* What a gzip file unpacks to: the length, or -1. */
static ssize_t unpack(const char *packed, size_t length, char *to, size_t most, struct nj_error *error)
{
    size_t done = 0, got = 1;
    temporary_write_file(path, packed, length);
    struct nj_byte_source *source = byte_source_open_gzip(byte_source_open_file(path, NULL, error), error);
    assert_non_null(source);
    while (got > 0) {
        assert_true(done < most);
        if (byte_source_read(source, to + done, most - done < 100 ? most - done : 100, &got, error) != 0) {
            byte_source_close(source);
            return -1;
        }
        done += got;
    }
    byte_source_close(source);
    return (ssize_t)done;
}

static void test_gzip_members_and_padding(void **state)
{
    (void)state;
    struct nj_error error;
    char packed[2 * PACKED_MOST] = {0}, out[2 * TEXT_BYTES + 1];
    size_t first = pack(text, 1000, packed);
    size_t both = first + pack(text + 1000, TEXT_BYTES - 1000, packed + first);
    assert_int_equal(unpack(packed, both, out, sizeof out, &error), TEXT_BYTES);
    assert_memory_equal(out, text, TEXT_BYTES);
    assert_int_equal(unpack(packed, both + 512, out, sizeof out, &error), TEXT_BYTES);
    packed[both + 3] = 'x';
    assert_int_equal(unpack(packed, both + 512, out, sizeof out, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "something else follows"));
    size_t empty = pack(text, 0, packed);
    assert_int_equal(unpack(packed, empty, out, sizeof out, &error), 0);
}

/* Cut or changed anywhere: an error, or (the header's unused fields) the right text. */
static void test_gzip_damage(void **state)
{
    (void)state;
    struct nj_error error;
    char packed[PACKED_MOST], out[8 * TEXT_BYTES];
    size_t length = pack(text, TEXT_BYTES, packed), accepted = 0;
    for (size_t i = 0; i < length; i++) {
        assert_int_equal(unpack(packed, i, out, sizeof out, &error), -1);
        assert_int_equal(error.code, NJ_BAD_DATA);
        packed[i] ^= 0x20;
        if (unpack(packed, length, out, sizeof out, &error) < 0) {
            assert_int_equal(error.code, NJ_BAD_DATA);
        } else {
            assert_memory_equal(out, text, TEXT_BYTES);
            accepted++;
        }
        packed[i] ^= 0x20;
    }
    assert_true(accepted < 10);
}

static void test_stop_flag(void **state)
{
    (void)state;
    struct nj_error error;
    atomic_int stop = 15;
    char byte;
    size_t got;
    temporary_write_file(path, "text", 4);
    struct nj_byte_source *source = byte_source_open_file(path, &stop, &error);
    assert_int_equal(byte_source_read(source, &byte, 1, &got, &error), -1);
    assert_int_equal(error.code, NJ_INTERRUPTED);
    byte_source_close(source);
}

struct member {
    const char *name, *content;
    size_t length;
    bool link;
};

static void add_member(struct archive *archive, const struct member *member)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, member->name);
    archive_entry_set_filetype(entry, member->link ? AE_IFLNK : AE_IFREG);
    archive_entry_set_perm(entry, 0600);
    archive_entry_set_size(entry, member->link ? 0 : (la_int64_t)member->length);
    if (member->link)
        archive_entry_set_symlink(entry, "/etc/passwd");
    assert_int_equal(archive_write_header(archive, entry), ARCHIVE_OK);
    if (!member->link)
        assert_int_equal(archive_write_data(archive, member->content, member->length), member->length);
    archive_entry_free(entry);
}

typedef int (*set_option)(struct archive *archive);

static void write_archive(set_option format, set_option filter, const struct member *members, size_t count)
{
    struct archive *archive = archive_write_new();
    assert_int_equal(format(archive), ARCHIVE_OK);
    if (filter != NULL)
        assert_int_equal(filter(archive), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(archive, path), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++)
        add_member(archive, &members[i]);
    assert_int_equal(archive_write_close(archive), ARCHIVE_OK);
    archive_write_free(archive);
}

static void expect_member(struct nj_archive_reader *reader, const char *name)
{
    struct nj_error error;
    const char *got_name;
    char out[TEXT_BYTES + 1];
    size_t done = 0, got = 1;
    if (archive_reader_next(reader, &got_name, &error) != 1)
        fail_msg("%s: %s", name, error.message);
    assert_string_equal(got_name, name);
    while (got > 0) {
        assert_int_equal(archive_reader_read(reader, out + done, sizeof out - done, &got, &error), 0);
        done += got;
    }
    assert_int_equal(done, TEXT_BYTES);
    assert_memory_equal(out, text, TEXT_BYTES);
}

static void test_formats_and_names(void **state)
{
    (void)state;
    static const struct {
        set_option format, filter;
    } kinds[] = {
        {archive_write_set_format_pax_restricted, NULL},
        {archive_write_set_format_ustar, archive_write_add_filter_gzip},
        {archive_write_set_format_gnutar, archive_write_add_filter_xz},
        {archive_write_set_format_pax_restricted, archive_write_add_filter_zstd},
        {archive_write_set_format_zip, NULL},
    };
    struct nj_error error;
    const char *name;
    char packed[PACKED_MOST];
    size_t packed_length = pack(text, TEXT_BYTES, packed);
    const struct member members[] = {
        {"read.me", "no", 2, false},     {"a.jsonl", text, TEXT_BYTES, false},
        {"link.jsonl", NULL, 0, true},   {"/abs/./b.jsonl.gz", packed, packed_length, false},
        {"x/._b.jsonl", "no", 2, false}, {"../c\n.jsonl", text, TEXT_BYTES, false},
        {".jsonl", "no", 2, false},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        write_archive(kinds[i].format, kinds[i].filter, members, sizeof members / sizeof members[0]);
        struct nj_archive_reader *reader = archive_reader_open(path, &NJ_UNPACK_LIMITS, NULL, &error);
        assert_non_null(reader);
        expect_member(reader, "a.jsonl");
        expect_member(reader, "abs/b.jsonl.gz");
        expect_member(reader, "%2E%2E/c%0A.jsonl");
        assert_int_equal(archive_reader_next(reader, &name, &error), 0);
        archive_reader_close(reader);
    }
}

/* Members that are begun and not read to their end, or not at all. */
static void test_members_may_be_left(void **state)
{
    (void)state;
    struct nj_error error;
    const char *name;
    const struct member members[] = {{"a.jsonl", text, TEXT_BYTES, false}, {"b.jsonl", text, TEXT_BYTES, false}};
    write_archive(archive_write_set_format_ustar, NULL, members, 2);
    struct nj_archive_reader *reader = archive_reader_open(path, &NJ_UNPACK_LIMITS, NULL, &error);
    assert_int_equal(archive_reader_next(reader, &name, &error), 1);
    expect_member(reader, "b.jsonl");
    archive_reader_close(reader);
}

/* The code with which reading everything ends. */
static enum nj_code read_all(const struct nj_unpack_limits *limits, struct nj_error *error)
{
    char out[1000];
    const char *name;
    int more = 0;
    size_t got;
    *error = (struct nj_error){0};
    struct nj_archive_reader *reader = archive_reader_open(path, limits, NULL, error);
    while (reader != NULL && (more = archive_reader_next(reader, &name, error)) > 0) {
        do {
            more = archive_reader_read(reader, out, sizeof out, &got, error);
        } while (more == 0 && got > 0);
        if (more < 0)
            break;
    }
    archive_reader_close(reader);
    return reader == NULL || more < 0 ? error->code : NJ_OK;
}

static void test_limits(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_unpack_limits limits = NJ_UNPACK_LIMITS;
    char *zeros = calloc(1, 1 << 20);
    assert_non_null(zeros);
    const struct member wanted[] = {{"a.jsonl", zeros, 1 << 20, false}, {"b.jsonl", zeros, 1 << 20, false}};
    const struct member passed[] = {{"a.bin", zeros, 1 << 20, false}, {"b.jsonl", text, 10, false}};
    write_archive(archive_write_set_format_ustar, archive_write_add_filter_zstd, wanted, 2);
    assert_int_equal(read_all(&limits, &error), NJ_OK);
    limits.members = 1;
    assert_int_equal(read_all(&limits, &error), NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "more than 1 members"));
    limits = NJ_UNPACK_LIMITS;
    limits.bytes = 3 << 19;
    assert_int_equal(read_all(&limits, &error), NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "more than 1 MiB"));
    limits = NJ_UNPACK_LIMITS;
    limits.ratio_minimum = 1 << 19;
    limits.ratio = 20;
    assert_int_equal(read_all(&limits, &error), NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "20 times its size"));
    /* What is passed over counts too. */
    write_archive(archive_write_set_format_ustar, archive_write_add_filter_zstd, passed, 2);
    assert_int_equal(read_all(&limits, &error), NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "20 times its size"));
    free(zeros);
}

/* A tar that ends behind a member instead of with its zeros, whole for the compressor: as if the cut had fallen between
 * two frames. Libarchive's raw format writes the bytes as they are, compressed. */
static void test_cut_between_frames(void **state)
{
    (void)state;
    static const set_option filters[] = {NULL, archive_write_add_filter_gzip, archive_write_add_filter_xz,
                                         archive_write_add_filter_zstd};
    struct nj_error error;
    char tar[16 << 10];
    const struct member two[] = {{"a.jsonl", text, 1000, false}, {"b.jsonl", text, 1024, false}};
    write_archive(archive_write_set_format_ustar, NULL, two, 2);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(tar, 1, sizeof tar, file);
    fclose(file);
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        static const size_t cuts[] = {512 + 1024, 2 * (512 + 1024)};
        const struct member whole = {"a.tar", tar, length, false};
        write_archive(archive_write_set_format_raw, filters[i], &whole, 1);
        assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_OK);
        for (size_t cut = 0; cut < 2; cut++) {
            const struct member part = {"a.tar", tar, cuts[cut], false};
            write_archive(archive_write_set_format_raw, filters[i], &part, 1);
            assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_BAD_DATA);
            assert_non_null(strstr(error.message, "it was cut behind a member"));
        }
    }
}

/* Formats that libarchive knows and nightjar does not take, and cut ones. */
static void test_refused_archives(void **state)
{
    (void)state;
    struct nj_error error;
    const struct member members[] = {{"a.jsonl", text, TEXT_BYTES, false}};
    write_archive(archive_write_set_format_cpio, NULL, members, 1);
    assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_BAD_DATA);
    write_archive(archive_write_set_format_ustar, archive_write_add_filter_bzip2, members, 1);
    assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_BAD_DATA);
    assert_string_equal(error.file, path);
    const struct member none[] = {{"a.txt", text, TEXT_BYTES, false}};
    write_archive(archive_write_set_format_ustar, NULL, none, 1);
    assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_NO_INPUT);
    const struct member two[] = {{"a.jsonl", text, 1024, false}, {"b.jsonl", text, 1024, false}};
    write_archive(archive_write_set_format_ustar, NULL, two, 2);
    assert_int_equal(truncate(path, 512 + 1024), 0); /* between two members */
    assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "it was cut behind a member"));
    static const set_option filters[] = {NULL, archive_write_add_filter_gzip, archive_write_add_filter_xz,
                                         archive_write_add_filter_zstd};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        write_archive(archive_write_set_format_ustar, filters[i], members, 1);
        assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_OK);
        assert_int_equal(truncate(path, i == 0 ? 2000 : 200), 0);
        assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_BAD_DATA);
    }
    write_archive(archive_write_set_format_zip, NULL, members, 1);
    assert_int_equal(truncate(path, 300), 0);
    assert_int_equal(read_all(&NJ_UNPACK_LIMITS, &error), NJ_BAD_DATA);
}

/* Any byte changed: the answer is the members or one of the two codes. */
static void test_changed_archives(void **state)
{
    (void)state;
    static const struct {
        set_option format, filter;
    } kinds[] = {{archive_write_set_format_pax, NULL},
                 {archive_write_set_format_ustar, archive_write_add_filter_xz},
                 {archive_write_set_format_ustar, archive_write_add_filter_zstd},
                 {archive_write_set_format_zip, NULL}};
    struct nj_error error;
    char content[1 << 15], packed[PACKED_MOST];
    const struct member members[] = {{"a.jsonl", text, 600, false},
                                     {"b.jsonl.gz", packed, pack(text, 500, packed), false}};
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        write_archive(kinds[kind].format, kinds[kind].filter, members, 2);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        size_t length = fread(content, 1, sizeof content, file), refused = 0;
        fclose(file);
        for (size_t i = 0; i < length; i++) {
            content[i] ^= (char)(1 << i % 8);
            temporary_write_file(path, content, length);
            content[i] ^= (char)(1 << i % 8);
            enum nj_code code = read_all(&NJ_UNPACK_LIMITS, &error);
            assert_true(code == NJ_OK || code == NJ_BAD_DATA || code == NJ_NO_INPUT);
            refused += code != NJ_OK;
        }
        assert_true(refused > 100);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gzip_members_and_padding), TEST(test_gzip_damage),         TEST(test_stop_flag),
        TEST(test_formats_and_names),        TEST(test_members_may_be_left), TEST(test_limits),
        TEST(test_cut_between_frames),       TEST(test_refused_archives),    TEST(test_changed_archives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
