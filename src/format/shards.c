/* Models in several files. GGUF numbers them in their names and says in each which one it is; safetensors has an index that names a
 * file for each tensor. Neither is believed: every part is checked against what the others said of it. */
#include "format/file.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATH_ROOM = 4096, MOST_SHARDS = 65535, TAIL = 20 }; /* "-00001-of-00003.gguf" */

/* ---- GGUF: NAME-00001-of-00003.gguf */

static int64_t split_number(const qn_file *file, const char *name) {
    qn_file_value v;
    if (qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, name), &v) != QN_OK) return -1;
    return v.type == QN_KEY_STRING || v.type == QN_KEY_ARRAY ? -1 : v.integer;
}

/* Length of NAME when the path is numbered for `count` files, else 0. */
static size_t split_stem(const char *path, int64_t count) {
    size_t n = strlen(path);
    char end[TAIL + 1];
    if (n <= TAIL || count > 99999) return 0;
    const char *tail = path + n - TAIL;
    for (int i = 1; i < 6; i++)
        if (tail[i] < '0' || tail[i] > '9') return 0;
    snprintf(end, sizeof end, "-%.5s-of-%05d.gguf", tail + 1, (int)count);
    return strcmp(end, tail) == 0 ? n - TAIL : 0;
}

static qn_status read_shard(qn_file *file, const char *path, uint32_t shard, qn_error *error) {
    qn_file_format format;
    qn_status status = qn_format_source_add(file, path, error);
    if (status == QN_OK) status = qn_format_detect(&file->sources.at[shard], &format, error);
    if (status == QN_OK && format != file->format)
        status = qn_error_set(error, QN_FORMAT, "its format is not that of the other files");
    if (status == QN_OK && format == QN_FILE_GGUF) status = qn_format_gguf_read(file, shard, error);
    if (status == QN_OK && format == QN_FILE_SAFETENSORS) status = qn_format_safetensors_read(file, shard, error);
    const char *name = strrchr(path, '/');
    return status == QN_OK ? QN_OK : (qn_error_wrap(error, "%s", name ? name + 1 : path), status);
}

static qn_status check_split(const qn_file *file, int64_t number, int64_t count, qn_error *error) {
    int64_t no = split_number(file, "split.no"), all = split_number(file, "split.count");
    if (no == number && all == count) return QN_OK;
    return qn_error_set(error, QN_FORMAT, "file %lld of %lld says that it is file %lld of %lld", (long long)number + 1,
                        (long long)count, (long long)no + 1, (long long)all);
}

/* Reads files [from, count) of a split; the keys are those of the first. */
static qn_status read_split(qn_file *file, const char *path, size_t stem, uint32_t from, int64_t count, qn_error *error) {
    char one[PATH_ROOM];
    qn_format_keys keys = {0};
    for (uint32_t i = from; i < count; i++) {
        if (i == 1) {
            keys = file->keys;
            memset(&file->keys, 0, sizeof file->keys);
        }
        snprintf(one, sizeof one, "%.*s-%05u-of-%05u.gguf", (int)stem, path, i + 1, (uint32_t)count);
        qn_status status = read_shard(file, one, i, error);
        if (status == QN_OK) status = check_split(file, i, count, error);
        if (status != QN_OK) return status;
    }
    QN_VEC_FREE(&file->arena, &file->keys);
    file->keys = keys;
    return qn_format_table_sort(file, QN_FILE_KEYS, error);
}

qn_status qn_format_gguf_shards(qn_file *file, const char *path, qn_error *error) {
    int64_t count = split_number(file, "split.count"), no = split_number(file, "split.no");
    if (count <= 1) return QN_OK;
    size_t stem = split_stem(path, count);
    if (count > MOST_SHARDS || no < 0 || no >= count)
        return qn_error_set(error, QN_FORMAT, "file %lld of %lld is no part of a split model", (long long)no + 1,
                            (long long)count);
    if (file->options.data)
        return qn_error_set(error, QN_UNSUPPORTED, "file %lld of %lld: a split model cannot be read from memory",
                            (long long)no + 1, (long long)count);
    if (!stem || strlen(path) >= PATH_ROOM)
        return qn_error_set(error, QN_FORMAT,
                            "this is file %lld of %lld, but its name does not end in -%05lld-of-%05lld.gguf, so that the others "
                            "cannot be found",
                            (long long)no + 1, (long long)count, (long long)no + 1, (long long)count);
    if (no > 0) { /* begin again at the first */
        qn_format_source_drop(file);
        file->tensors.n = 0;
    }
    qn_status status = read_split(file, path, stem, no > 0 ? 0 : 1, count, error);
    int64_t tensors = split_number(file, "split.tensors.count");
    if (status == QN_OK && tensors >= 0 && (uint64_t)tensors != file->tensors.n)
        return qn_error_set(error, QN_FORMAT, "the files have %zu tensors together, split.tensors.count says %lld",
                            file->tensors.n, (long long)tensors);
    return status;
}

/* ---- safetensors: {"weight_map": {"tensor": "file", ...}} */

static const char map_prefix[] = "weight_map.";

/* The file a key of the index names, 0 bytes when it is no such key. */
static uint64_t mapped_file(const qn_file *file, const qn_format_key *key, const char **name) {
    qn_file_value v;
    if (strncmp(key->name, map_prefix, sizeof map_prefix - 1) != 0 || key->type != QN_KEY_STRING) return 0;
    if (qn_file_key(file, key - file->keys.at, &v) != QN_OK) return 0;
    *name = v.text;
    return v.bytes;
}

/* A file beside the index and nothing else. */
static qn_status check_plain(const char *name, uint64_t bytes, qn_error *error) {
    char shown[QN_FORMAT_SHOWN];
    int plain = bytes < 256 && !memchr(name, '/', (size_t)bytes) && !memchr(name, '\\', (size_t)bytes) &&
                !memchr(name, 0, (size_t)bytes) && name[0] != '.';
    if (plain) return QN_OK;
    return qn_error_set(error, QN_FORMAT, "the index names the file '%s', which is not a plain name of a file beside it",
                        qn_format_name_show(name, bytes, shown));
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Names of the files, each once, in order. */
typedef QN_VEC(const char *) name_list;

static qn_status collect_files(qn_file *file, name_list *names, qn_error *error) {
    name_list all = {0};
    for (size_t i = 0; i < file->keys.n; i++) {
        const char *text;
        uint64_t bytes = mapped_file(file, &file->keys.at[i], &text);
        if (!bytes) continue;
        qn_status status = check_plain(text, bytes, error);
        if (status != QN_OK) return status;
        if (all.n && strlen(all.at[all.n - 1]) == bytes && memcmp(all.at[all.n - 1], text, (size_t)bytes) == 0) continue;
        const char *copy = qn_format_name_copy(file, text, bytes);
        if (!copy || !QN_VEC_ROOM(&file->arena, &all, 1)) return qn_format_no_memory(file, error);
        all.at[all.n++] = copy;
    }
    if (all.n) qsort(all.at, all.n, sizeof *all.at, by_text);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++)
        if (i == 0 || strcmp(all.at[i], all.at[n - 1]) != 0) all.at[n++] = all.at[i];
    all.n = n;
    *names = all;
    if (n == 0 || n > MOST_SHARDS)
        return qn_error_set(error, QN_FORMAT, "the index maps tensors to %zu files; 1 to %d are possible", n, MOST_SHARDS);
    return QN_OK;
}

/* Every tensor of the index must be in the file that the index says. */
static qn_status check_map(const qn_file *file, const qn_format_keys *index, const name_list *names, qn_error *error) {
    char shown[QN_FORMAT_SHOWN];
    for (size_t i = 0; i < index->n; i++) {
        const qn_format_key *key = &index->at[i];
        if (strncmp(key->name, map_prefix, sizeof map_prefix - 1) != 0 || key->type != QN_KEY_STRING) continue;
        const char *tensor = key->name + sizeof map_prefix - 1;
        int64_t found = qn_file_find(file, QN_FILE_TENSORS, tensor);
        qn_file_value v;
        qn_format_value_decode(key->type, key->at, key->bytes, &v);
        size_t shard = found < 0 ? names->n : file->tensors.at[found].shard;
        const char *there = shard < names->n ? names->at[shard] : "";
        if (shard == names->n || strlen(there) != v.bytes || memcmp(there, v.text, (size_t)v.bytes) != 0)
            return qn_error_set(error, QN_FORMAT, "tensor '%s' is not in the file that the index names for it",
                                qn_format_name_show(tensor, strlen(tensor), shown));
    }
    return QN_OK;
}

qn_status qn_format_safetensors_shards(qn_file *file, const char *path, qn_error *error) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path + 1) : 0;
    char one[PATH_ROOM];
    name_list names = {0};
    qn_format_keys index = file->keys, first = {0};
    qn_status status = collect_files(file, &names, error);
    if (status != QN_OK) return status;
    qn_format_source_drop(file); /* what the keys hold was copied from the text */
    memset(&file->keys, 0, sizeof file->keys);
    file->format = QN_FILE_SAFETENSORS;
    for (size_t i = 0; i < names.n && status == QN_OK; i++) {
        if (snprintf(one, sizeof one, "%.*s%s", folder, path, names.at[i]) >= (int)sizeof one)
            return qn_error_set(error, QN_IO, "the path of '%s' is too long", names.at[i]);
        status = read_shard(file, one, (uint32_t)i, error);
        if (i == 0) first = file->keys;
        memset(&file->keys, 0, sizeof file->keys);
    }
    file->keys = first;
    if (status == QN_OK) status = qn_format_table_sort(file, QN_FILE_TENSORS, error);
    return status == QN_OK ? check_map(file, &index, &names, error) : status;
}
