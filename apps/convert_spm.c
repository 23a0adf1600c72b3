/* A sentencepiece model: a protocol buffer whose field 1 repeats for each piece: text (1), score (2), type (3). Of field 2, how it was
 * trained, and 3, how it normalises, the fields that change which tokens a text has are heard. Lengths are checked against what is left,
 * wherever they stand. */
#include "convert_parts.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct wire {
    const uint8_t *at, *end;
} wire;

typedef struct field {
    uint64_t number, kind, value; /* of VARINT */
    const uint8_t *data;          /* of the others */
    uint64_t bytes;
} field;

static int take_varint(wire *w, uint64_t *v) {
    *v = 0;
    for (int shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        *v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return 1;
    }
    return 0;
}

/* The next field; 0 at the end or when it is broken, which `broken` tells. */
static int take_field(wire *w, field *f, int *broken) {
    uint64_t tag;
    if (w->at == w->end) return 0;
    *broken = 1;
    if (!take_varint(w, &tag)) return 0;
    f->number = tag >> 3;
    f->kind = tag & 7;
    if (f->kind == VARINT) {
        if (!take_varint(w, &f->value)) return 0;
    } else {
        f->bytes = f->kind == FIXED64 ? 8 : f->kind == FIXED32 ? 4 : 0;
        if (f->kind == BYTES && !take_varint(w, &f->bytes)) return 0;
        if (f->kind != BYTES && f->kind != FIXED64 && f->kind != FIXED32) return 0;
        if (f->bytes > (uint64_t)(w->end - w->at)) return 0;
        f->data = w->at;
        w->at += f->bytes;
    }
    *broken = 0;
    return 1;
}

static int take_piece(const field *piece, convert_spm *m) {
    wire w = {piece->data, piece->data + piece->bytes};
    field f, text = {0};
    float score = 0;
    int32_t type = 1; /* normal */
    int broken = 0;
    while (take_field(&w, &f, &broken)) {
        if (f.number == 1 && f.kind == BYTES) text = f;
        if (f.number == 2 && f.kind == FIXED32) memcpy(&score, f.data, sizeof score);
        if (f.number == 3 && f.kind == VARINT && f.value >= 1 && f.value <= 6) type = (int32_t)f.value;
    }
    convert_append_text(&m->tokens, (const char *)text.data, (size_t)text.bytes);
    convert_append(&m->scores, &score, sizeof score);
    convert_append(&m->types, &type, sizeof type);
    m->count++;
    return !broken;
}

static int take_training(const field *spec, convert_spm *m) {
    wire w = {spec->data, spec->data + spec->bytes};
    field f;
    int broken = 0;
    while (take_field(&w, &f, &broken)) {
        if (f.number == 3 && f.kind == VARINT) m->kind = f.value;
        if (f.number == 24 && f.kind == VARINT) m->at_end = f.value;
    }
    return !broken;
}

static int take_normalizer(const field *spec, convert_spm *m) {
    wire w = {spec->data, spec->data + spec->bytes};
    field f;
    int broken = 0;
    while (take_field(&w, &f, &broken)) {
        m->charsmap.n = f.number == 2 && f.kind == BYTES ? 0 : m->charsmap.n; /* the last one counts */
        if (f.number == 2 && f.kind == BYTES) convert_append(&m->charsmap, f.data, (size_t)f.bytes);
        if (f.number == 3 && f.kind == VARINT) m->prefix = f.value;
        if (f.number == 4 && f.kind == VARINT) m->single = f.value;
    }
    return !broken;
}

qn_status convert_read_spm(const char *path, convert_spm *m, qn_error *error) {
    size_t bytes;
    int broken = 0;
    char *data = convert_read_file(path, &bytes, error);
    if (!data) return error->status;
    wire w = {(const uint8_t *)data, (const uint8_t *)data + bytes};
    field f;
    m->kind = CONVERT_SPM_UNIGRAM; /* as sentencepiece has them when nobody says */
    m->prefix = m->single = 1;
    while (!broken && take_field(&w, &f, &broken)) {
        if (f.kind != BYTES) continue;
        if (f.number == 1) broken = !take_piece(&f, m);
        else if (f.number == 2) broken = !take_training(&f, m);
        else if (f.number == 3) broken = !take_normalizer(&f, m);
    }
    qn_status status = QN_OK;
    if (m->tokens.failed || m->scores.failed || m->types.failed || m->charsmap.failed)
        status = qn_error_set(error, QN_NO_MEMORY, "%s: no memory", path);
    else if (broken || !m->count)
        status = qn_error_set(error, QN_FORMAT, "%s: byte %zu: this is no sentencepiece model", path,
                              bytes - (size_t)(w.end - w.at));
    free(data);
    return status;
}
