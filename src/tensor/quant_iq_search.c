/* The codebook search behind the iq1, iq2 and iq3 encoders; see quant_iq_search.h.
 *
 * With a the scale, g an entry and x the values (magnitudes, where signs are separate), the squared error is
 * |x|^2 - 2 a (x.g) + a^2 |g|^2. The products x.g do not depend on a, so they are computed once per unit, for the
 * whole grid, from tables of its two halves; each scale then costs two operations per entry. A sign rule that forces
 * one value to the wrong side costs least at the smallest x_i g_i, and lowers the product by twice that. Weights go into
 * the products as w x, and into the lengths |g|^2, which are then each unit's own. */
#include "quant_iq_search.h"

#include <float.h>

#include "quant_bits.h"
#include "quant_search.h"

enum { BLOCK = 256, MAX_UNITS = 8, MAX_DOTS = 8192, STARTS = 14, POLISH = 3 };

static const float shift_of[2] = {0.125f, -0.125f};

/* One section on the bench. dots: units * entries products; for pairs, as many again with one value on the wrong
 * side. */
typedef struct qn_iq_bench {
    const qn_iq_book *book;
    const qn_iq_norms *norms;
    const float *x, *w;
    int weighted;
    float dots[MAX_DOTS];
    float own_norms[2][MAX_DOTS]; /* with weights: squared lengths, units * entries */
    float sum[MAX_UNITS];         /* of the unit's values under their weights: what a shift adds */
    uint8_t odd[4];               /* per 8 values: the sign rule is broken as they stand */
} qn_iq_bench;

/* The choices for one section at one scale. */
typedef struct qn_iq_picks {
    int entry[MAX_UNITS];
    uint8_t flipped[MAX_UNITS];
    uint8_t shift[MAX_UNITS];
    float dot; /* x.g over the section */
    float norm;
} qn_iq_picks;

static int is_shifted(qn_iq_kind kind) { return kind == QN_IQ_SHIFT || kind == QN_IQ_SHIFT_SECTION; }

void qn_iq_prepare(const qn_iq_book *book, qn_iq_norms *norms) {
    int bits = book->digits == 8 ? 2 : 3, mask = (1 << bits) - 1;
    for (int sign = 0; sign < 2; sign++)
        for (int n = 0; n < book->entries; n++) {
            float shift = is_shifted(book->kind) ? shift_of[sign] : 0.0f, sum = 0.0f;
            for (int i = 0; i < book->digits; i++) {
                float value = (float)book->values[(book->grid[n] >> (bits * i)) & mask] + shift;
                sum += value * value;
            }
            norms->norm[sign][n] = sum;
        }
}

/* Products and smallest single terms for every combination of digits in one half of an entry. */
static void half_tables(const qn_iq_book *book, const float *x, float *dots, float *least) {
    int digits = book->digits / 2, bits = book->digits == 8 ? 2 : 3, mask = (1 << bits) - 1;
    for (int code = 0; code < 1 << (digits * bits); code++) {
        dots[code] = 0.0f;
        least[code] = FLT_MAX;
        for (int i = 0; i < digits; i++) {
            float term = x[i] * (float)book->values[(code >> (bits * i)) & mask];
            dots[code] += term;
            least[code] = term < least[code] ? term : least[code];
        }
    }
}

/* All products of one unit. `plain` gets them as they are, `wrong` with the cheapest value flipped; either may be
 * NULL. */
static void unit_dots(const qn_iq_book *book, const float *x, float *plain, float *wrong) {
    float dots[2][256], least[2][256];
    int half_bits = book->digits == 8 ? 8 : 6, mask = (1 << half_bits) - 1;
    half_tables(book, x, dots[0], least[0]);
    half_tables(book, x + book->digits / 2, dots[1], least[1]);
    for (int n = 0; n < book->entries; n++) {
        int low = book->grid[n] & mask, high = book->grid[n] >> half_bits;
        float dot = dots[0][low] + dots[1][high];
        if (plain != NULL) plain[n] = dot;
        if (wrong != NULL) wrong[n] = dot - 2.0f * (least[0][low] < least[1][high] ? least[0][low] : least[1][high]);
    }
}

/* Squared lengths of one unit's entries under its weights, without a shift or with either one. */
static void unit_norms(const qn_iq_book *book, const float *w, float *plus, float *minus) {
    int bits = book->digits == 8 ? 2 : 3, mask = (1 << bits) - 1, half_bits = book->digits / 2 * bits;
    float *const norms[2] = {plus, minus};
    for (int sign = 0; sign < (is_shifted(book->kind) ? 2 : 1); sign++) {
        float halves[2][256], shift = is_shifted(book->kind) ? shift_of[sign] : 0.0f;
        for (int half = 0; half < 2; half++)
            for (int code = 0; code < 1 << half_bits; code++) {
                halves[half][code] = 0.0f;
                for (int i = 0; i < book->digits / 2; i++) {
                    float value = (float)book->values[(code >> (bits * i)) & mask] + shift;
                    halves[half][code] += w[half * book->digits / 2 + i] * value * value;
                }
            }
        for (int n = 0; n < book->entries; n++)
            norms[sign][n] = halves[0][book->grid[n] & ((1 << half_bits) - 1)] + halves[1][book->grid[n] >> half_bits];
    }
}

static const float *norms_of(const qn_iq_bench *bench, int u, int shift) {
    return bench->weighted ? bench->own_norms[shift] + u * bench->book->entries : bench->norms->norm[shift];
}

static void load_section(qn_iq_bench *bench, const float *x, const float *w, float *magnitudes) {
    const qn_iq_book *book = bench->book;
    int size = book->units * book->digits, separate = !is_shifted(book->kind);
    float products[32] = {0.0f};
    memset(bench->odd, 0, sizeof bench->odd);
    memset(bench->sum, 0, sizeof bench->sum);
    for (int e = 0; e < size; e++) {
        magnitudes[e] = separate ? qn_abs_f32(x[e]) : x[e];
        products[e] = w[e] * magnitudes[e];
        bench->sum[e / book->digits] += products[e];
        bench->odd[e / 8] ^= x[e] < 0.0f;
    }
    bench->x = magnitudes;
    bench->w = w;
    for (int u = 0; u < book->units; u++) {
        float *plain = bench->dots + u * book->entries, *wrong = NULL;
        if (book->kind == QN_IQ_EVEN && bench->odd[u]) {
            wrong = plain;
            plain = NULL;
        } else if (book->kind == QN_IQ_EVEN_PAIR) {
            wrong = plain + book->units * book->entries;
        }
        unit_dots(book, products + u * book->digits, plain, wrong);
        if (bench->weighted)
            unit_norms(book, w + u * book->digits, bench->own_norms[0] + u * book->entries,
                       bench->own_norms[1] + u * book->entries);
    }
}

/* The entry of least error, up to the terms that are the same for all: a * norm - 2 * dot. */
static float best_entry(const float *dots, const float *norms, int entries, float a, int *entry) {
    float best = FLT_MAX;
    int found = 0;
    for (int n = 0; n < entries; n++) {
        float score = a * norms[n] - 2.0f * dots[n];
        if (score < best) {
            best = score;
            found = n;
        }
    }
    *entry = found;
    return best;
}

/* Two units of four under one sign rule: when it is broken, one of them takes the flip, whichever pays less. */
static void pick_pair(const qn_iq_bench *bench, int u, float a, qn_iq_picks *picks) {
    const qn_iq_book *book = bench->book;
    const float *plain = bench->dots + u * book->entries, *wrong = plain + book->units * book->entries;
    const float *const norm[2] = {norms_of(bench, u, 0), norms_of(bench, u + 1, 0)};
    int right[2], flipped[2], which = -1;
    float right_score[2], flipped_score[2];
    for (int i = 0; i < 2; i++) right_score[i] = best_entry(plain + i * book->entries, norm[i], book->entries, a, &right[i]);
    if (bench->odd[u / 2]) {
        for (int i = 0; i < 2; i++)
            flipped_score[i] = best_entry(wrong + i * book->entries, norm[i], book->entries, a, &flipped[i]);
        which = flipped_score[0] + right_score[1] <= right_score[0] + flipped_score[1] ? 0 : 1;
    }
    for (int i = 0; i < 2; i++) {
        int entry = which == i ? flipped[i] : right[i];
        picks->entry[u + i] = entry;
        picks->flipped[u + i] = which == i;
        picks->dot += (which == i ? wrong : plain)[i * book->entries + entry];
        picks->norm += norm[i][entry];
    }
}

/* One unit with a given shift; returns its score with everything that depends on the shift. */
static float pick_unit(const qn_iq_bench *bench, int u, float a, int shift, qn_iq_picks *picks) {
    const qn_iq_book *book = bench->book;
    const float *dots = bench->dots + u * book->entries, *norms = norms_of(bench, u, shift);
    float offset = is_shifted(book->kind) ? shift_of[shift] * bench->sum[u] : 0.0f;
    float score = best_entry(dots, norms, book->entries, a, &picks->entry[u]) - 2.0f * offset;
    picks->shift[u] = (uint8_t)shift;
    picks->flipped[u] = book->kind == QN_IQ_EVEN && bench->odd[u];
    picks->dot += dots[picks->entry[u]] + offset;
    picks->norm += norms[picks->entry[u]];
    return score;
}

/* Best codes for the section at scale a. */
static void pick_section(const qn_iq_bench *bench, float a, qn_iq_picks *picks) {
    const qn_iq_book *book = bench->book;
    memset(picks, 0, sizeof *picks);
    if (book->kind == QN_IQ_SHIFT_SECTION) {
        qn_iq_picks other;
        float score[2] = {0.0f, 0.0f};
        memset(&other, 0, sizeof other);
        for (int u = 0; u < book->units; u++) {
            score[0] += pick_unit(bench, u, a, 0, picks);
            score[1] += pick_unit(bench, u, a, 1, &other);
        }
        if (score[1] < score[0]) *picks = other;
        return;
    }
    for (int u = 0; u < book->units; u++) {
        if (book->kind == QN_IQ_EVEN_PAIR) {
            pick_pair(bench, u++, a, picks);
        } else if (book->kind == QN_IQ_SHIFT) {
            qn_iq_picks first = *picks, second = *picks;
            float plus = pick_unit(bench, u, a, 0, &first), minus = pick_unit(bench, u, a, 1, &second);
            *picks = minus < plus ? second : first;
        } else {
            pick_unit(bench, u, a, 0, picks);
        }
    }
}

/* The scale that explains most of the section when it may be any number. */
static float fit_section(const qn_iq_bench *bench, int size) {
    float peak = 0.0f, best_gain = 0.0f, best = 0.0f;
    for (int e = 0; e < size; e++) peak = qn_abs_f32(bench->x[e]) > peak ? qn_abs_f32(bench->x[e]) : peak;
    for (int trial = 0; trial < STARTS + POLISH && peak > 0.0f; trial++) {
        float a = trial < STARTS ? peak / bench->book->peak_value * (0.40f + 0.06f * (float)trial) : best;
        qn_iq_picks picks;
        pick_section(bench, a, &picks);
        if (!(picks.dot > 0.0f) || !(picks.norm > 0.0f)) continue;
        float gain = picks.dot / picks.norm * picks.dot;
        if (gain > best_gain) {
            best_gain = gain;
            best = picks.dot / picks.norm;
        } else if (trial >= STARTS) {
            break;
        }
    }
    return best;
}

/* Signs of one unit: those of the values, one of them turned where the sign rule asks. */
static unsigned unit_signs(const qn_iq_bench *bench, const float *x, int u, const qn_iq_picks *picks) {
    const qn_iq_book *book = bench->book;
    int bits = book->digits == 8 ? 2 : 3, mask = (1 << bits) - 1, cheapest = 0;
    unsigned signs = 0;
    float least = FLT_MAX;
    for (int i = 0; i < book->digits; i++) {
        float value = x[u * book->digits + i];
        float term = bench->w[u * book->digits + i] * qn_abs_f32(value) *
                     (float)book->values[(book->grid[picks->entry[u]] >> (bits * i)) & mask];
        if (value < 0.0f) signs |= 1u << i;
        if (term < least) {
            least = term;
            cheapest = i;
        }
    }
    return picks->flipped[u] ? signs ^ 1u << cheapest : signs;
}

static void store_section(const qn_iq_bench *bench, const float *x, int section, const qn_iq_picks *picks, qn_iq_codes *codes) {
    const qn_iq_book *book = bench->book;
    for (int u = 0; u < book->units; u++) {
        int unit = section * book->units + u, group = unit * book->digits / 8, low = unit * book->digits % 8;
        unsigned signs = is_shifted(book->kind) ? 0u : unit_signs(bench, x, u, picks) << low;
        codes->entry[unit] = (uint16_t)picks->entry[u];
        codes->signs[group] = (uint8_t)(low == 0 ? signs : codes->signs[group] | signs);
        codes->shift[group] = picks->shift[u];
    }
}

/* Code one section under the stored d: the level nearest to its own scale and the two beside it are tried. Adds what a
 * refit of d needs to numerator and denominator. */
static void code_section(qn_iq_bench *bench, const float *x, int section, float wanted, float d, qn_iq_codes *codes,
                         float *numerator, float *denominator) {
    const qn_iq_book *book = bench->book;
    float best = FLT_MAX, unit = d * book->step;
    float position = unit > 0.0f ? (wanted / unit - 1.0f) * 0.5f : 0.0f;
    int guess = qn_round_even_to(position, 0, book->levels - 1);
    qn_iq_picks kept;
    memset(&kept, 0, sizeof kept);
    codes->level[section] = 0;
    for (int level = guess > 0 ? guess - 1 : 0; level <= guess + 1 && level < book->levels; level++) {
        float a = unit * (float)(2 * level + 1);
        qn_iq_picks picks;
        pick_section(bench, a, &picks);
        float error = a * (a * picks.norm - 2.0f * picks.dot);
        if (error < best) {
            best = error;
            kept = picks;
            codes->level[section] = (uint8_t)level;
        }
    }
    float factor = book->step * (float)(2 * codes->level[section] + 1);
    *numerator += factor * kept.dot;
    *denominator += factor * factor * kept.norm;
    store_section(bench, x, section, &kept, codes);
}

void qn_iq_encode_block(const qn_iq_book *book, const qn_iq_norms *norms, const float *src, const float *weights,
                        qn_iq_codes *codes) {
    float x[BLOCK], w[BLOCK], magnitudes[32] = {0.0f}, scales[16], top = 0.0f;
    uint8_t stored[2];
    qn_iq_bench bench;
    int exponent = qn_quant_normalise(src, BLOCK, x), size = book->units * book->digits, sections = BLOCK / size;
    qn_quant_take_weights(weights, BLOCK, w);
    bench.book = book; /* load_section sets the rest, as far as it is looked at */
    bench.norms = norms;
    bench.weighted = weights != NULL;
    for (int s = 0; s < sections; s++) {
        load_section(&bench, x + size * s, w + size * s, magnitudes);
        scales[s] = fit_section(&bench, size);
        top = scales[s] > top ? scales[s] : top;
    }
    float d = top / (book->step * (float)(2 * book->levels - 1));
    for (int pass = 0; pass < 2; pass++) {
        float numerator = 0.0f, denominator = 0.0f;
        d = qn_quant_put_normalised(stored, d, exponent);
        codes->d = qn_get_u16(stored);
        for (int s = 0; s < sections; s++) {
            load_section(&bench, x + size * s, w + size * s, magnitudes);
            code_section(&bench, x + size * s, s, scales[s], d, codes, &numerator, &denominator);
        }
        /* The levels are coarse; moving d to suit them all pays, and the codes are then chosen again. */
        if (numerator > 0.0f && denominator > 0.0f) d = numerator / denominator;
    }
}
