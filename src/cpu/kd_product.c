/* Units of a product of quantised weights: chunk by chunk a few panels are unpacked and all rows of the unit multiplied with them. */
#include "cpu/kd_quant.h"

enum { LINE = 64 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

int qn_quant_describe(qn_quant_product *p, const qn_tensor *weights, const qn_tensor *x, const qn_tensor *y, int64_t n_rows) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)weights->dtype);
    *p = (qn_quant_product){.type = qn_quant_type_of(weights->dtype), .m = qn_ne(weights, 1), .k = qn_ne(weights, 0)};
    p->block = info->block;
    p->bytes = info->bytes;
    p->kept = p->type && p->type->kept ? p->type->kept->bytes : p->bytes;
    p->panels = ceil_div(p->m, QN_PANEL);
    p->chunks = ceil_div(p->k, QN_CHUNK);
    p->step = qn_nb(weights, 1);
    p->n_rows = n_rows;
    p->unit_rows = n_rows < QN_QUANT_ROWS ? n_rows : QN_QUANT_ROWS;
    p->x_dtype = x->dtype;
    p->x_step = qn_nb(x, 0);
    p->y_step = qn_nb(y, 0);
    int floats = x->dtype == QN_DTYPE_F32 || x->dtype == QN_DTYPE_F16 || x->dtype == QN_DTYPE_BF16;
    return p->type && floats && y->dtype == QN_DTYPE_F32 && p->k > 0 && n_rows > 0 && p->m > 0 && qn_nb(weights, 0) == p->bytes;
}

static size_t chunk_bytes(const qn_quant_product *p) { return (size_t)(QN_CHUNK / p->block * p->bytes * QN_PANEL); }

/* What a part has for itself: unpacked panels, a chunk that is packed on the way, sums. */
enum { ONE = QN_DOT_PANELS_ONE, TILE = QN_TILE_PANELS, UNPACKED = ONE > TILE ? ONE : TILE }; /* as many as go abreast */
static size_t sums_at(const qn_quant_product *p) {
    return in_lines(UNPACKED * sizeof(qn_quant_chunk)) + in_lines(chunk_bytes(p));
}

size_t qn_quant_workspace(qn_quant_product *p, int64_t parts) {
    p->slot = in_lines(sums_at(p) + (size_t)p->unit_rows * QN_QUANT_PANELS * QN_PANEL * sizeof(float));
    return in_lines((size_t)(p->n_rows * p->chunks) * sizeof(qn_quant_row)) + p->slot * (size_t)parts;
}

void qn_quant_place(qn_quant_product *p, void *workspace) {
    p->rows = workspace;
    p->slots = (char *)workspace + in_lines((size_t)(p->n_rows * p->chunks) * sizeof(qn_quant_row));
}

static const uint8_t *panel_at(const qn_quant_product *p, const qn_quant_unit *u, int64_t panel) {
    return p->packed + (u->matrix * p->panels + panel) * (p->k / p->block) * p->kept * QN_PANEL;
}

static const uint8_t *chunk_at(const qn_quant_product *p, const qn_quant_unit *u, int64_t panel, int64_t chunk) {
    return panel_at(p, u, panel) + chunk * (QN_CHUNK / p->block) * p->kept * QN_PANEL;
}

/* The packed panels that follow those from `first` on: of this chunk, or the unit's first ones of the next. */
static qn_quant_next next_panels(const qn_quant_product *p, const qn_quant_unit *u, int64_t first, int64_t chunk) {
    qn_quant_next next = {.bytes = (int)(QN_CHUNK / p->block * p->kept * QN_PANEL)};
    if (first >= u->end) {
        first = u->panel;
        chunk++;
    }
    if (!p->packed || chunk >= p->chunks) return next;
    next.panels = u->end - first < QN_DOT_PANELS ? (int)(u->end - first) : QN_DOT_PANELS;
    for (int i = 0; i < next.panels; i++) next.at[i] = chunk_at(p, u, first + i, chunk);
    return next;
}

static void unpack(const qn_quant_product *p, const qn_quant_unit *u, int64_t panel, int64_t chunk, int count, uint8_t *aside,
                   qn_quant_chunk *to) {
    if (p->packed) {
        (p->type->kept ? p->type->kept->unpack : p->type->unpack)(chunk_at(p, u, panel, chunk), count, to);
        return;
    }
    int64_t left = p->m - panel * QN_PANEL;
    qn_quant_pack(p->type, u->weights + panel * QN_PANEL * p->step + chunk * (QN_CHUNK / p->block) * p->bytes, p->step,
                  left < QN_PANEL ? (int)left : QN_PANEL, count / p->block, aside);
    p->type->unpack(aside, count, to);
}

static void store(const qn_quant_product *p, const qn_quant_unit *u, const float *sums, int width) {
    int64_t first = u->panel * QN_PANEL, n = u->end * QN_PANEL < p->m ? width : p->m - first;
    for (int j = 0; j < u->n; j++) {
        char *y = u->y[j] + first * p->y_step;
        if (p->y_step == 4) memcpy(y, sums + (int64_t)j * width, (size_t)n * 4);
        else
            for (int64_t i = 0; i < n; i++) *(float *)(y + i * p->y_step) = sums[(int64_t)j * width + i];
    }
}

/* One row with packed panels: nothing would be used twice, so nothing is unpacked into memory. */
static void run_one(const qn_quant_product *p, const qn_quant_unit *u, float *sums) {
    qn_quant_line l = {.x = p->rows + u->x[0], .x_step = p->n_rows, .k = p->k, .offset = p->type->offset};
    for (int64_t first = u->panel; first < u->end; first += l.panels) {
        l.panels = u->end - first < QN_DOT_PANELS_ONE ? (int)(u->end - first) : QN_DOT_PANELS_ONE;
        for (int i = 0; i < l.panels; i++) l.panel[i] = panel_at(p, u, first + i);
        l.sums = sums + (first - u->panel) * QN_PANEL;
        p->type->one(&l);
    }
    store(p, u, sums, (int)(u->end - u->panel) * QN_PANEL);
}

/* Pairs of packed panels; a last one alone goes with itself, and what comes of it is dropped. */
static void run_few(const qn_quant_product *p, const qn_quant_unit *u, float *sums) {
    int width = (int)(u->end - u->panel) * QN_PANEL;
    float pair[QN_FEW_MOST * QN_FEW_PANELS * QN_PANEL];
    qn_quant_few l = {.rows = p->rows, .x = u->x, .n = u->n, .offset = p->type->offset, .x_step = p->n_rows, .k = p->k};
    for (int64_t first = u->panel; first < u->end; first += QN_FEW_PANELS) {
        int some = u->end - first < QN_FEW_PANELS ? (int)(u->end - first) : QN_FEW_PANELS;
        for (int i = 0; i < QN_FEW_PANELS; i++) l.panel[i] = panel_at(p, u, i < some ? first + i : first);
        l.sums = pair;
        l.step = QN_FEW_PANELS * QN_PANEL;
        memset(pair, 0, sizeof pair);
        p->type->few(&l);
        for (int j = 0; j < u->n; j++)
            memcpy(sums + j * width + (first - u->panel) * QN_PANEL, pair + j * l.step, (size_t)some * QN_PANEL * sizeof(float));
    }
    store(p, u, sums, width);
}

void qn_quant_run(const qn_quant_product *p, const qn_quant_unit *u, int64_t part) {
    char *slot = p->slots + p->slot * (size_t)part;
    qn_quant_chunk *w = (qn_quant_chunk *)slot;
    uint8_t *aside = (uint8_t *)slot + in_lines(UNPACKED * sizeof(qn_quant_chunk));
    float *sums = (float *)(slot + sums_at(p));
    int width = (int)(u->end - u->panel) * QN_PANEL, abreast = qn_quant_abreast(p->type, u->n);
    const qn_quant_row *x[QN_QUANT_ROWS];
    if (u->n == 1 && p->packed) {
        run_one(p, u, sums);
        return;
    }
    if (u->n <= QN_FEW_MOST && p->packed && p->type->few) {
        run_few(p, u, sums);
        return;
    }
    memset(sums, 0, (size_t)(u->n * width) * sizeof(float));
    for (int64_t c = 0; c < p->chunks; c++) {
        int count = p->k - c * QN_CHUNK < QN_CHUNK ? (int)(p->k - c * QN_CHUNK) : QN_CHUNK;
        for (int j = 0; j < u->n; j++) x[j] = p->rows + c * p->n_rows + u->x[j];
        for (int64_t first = u->panel; first < u->end; first += abreast) {
            int some = u->end - first < abreast ? (int)(u->end - first) : abreast;
            for (int i = 0; i < some; i++) unpack(p, u, first + i, c, count, aside, w + i);
            qn_quant_next next = next_panels(p, u, first + some, c);
            qn_quant_dots(p->type, w, some, x, u->n, count, sums + (first - u->panel) * QN_PANEL, width, &next);
        }
    }
#ifdef QN_TILES_END
    if (qn_quant_by_tiles(p->type, u->n)) qn_quant_tiles_end(u->n - u->n % QN_TILE_ROWS, sums, width);
#endif
    store(p, u, sums, width);
}
