/* Names that differ little from a word, for a person who mistyped: fewest letters to change, put in, leave out or exchange with
 * their neighbour; capitals count as small letters. A name that begins with the word, or the word with it, is near as well, but behind
 * those. */
#include <string.h>

#include <quern/quern.h>

enum { LONGEST = 62, MOST_EDITS = 3, LEAST_BEGINNING = 3, FAR = 99, MOST = 8 };

static int letter(char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : (unsigned char)c; }

static int least(int a, int b) { return a < b ? a : b; }

static int edits(const char *a, int n_a, const char *b, int n_b) {
    int rows[3][LONGEST + 1]; /* this one, the one before, and the one before that */
    for (int k = 0; k <= n_b; k++) rows[0][k] = k;
    for (int i = 1; i <= n_a; i++) {
        int *row = rows[i % 3], *before = rows[(i + 2) % 3], *first = rows[(i + 1) % 3];
        row[0] = i;
        for (int k = 1; k <= n_b; k++) {
            int crossed = i > 1 && k > 1 && letter(a[i - 1]) == letter(b[k - 2]) && letter(a[i - 2]) == letter(b[k - 1]);
            row[k] = least(before[k - 1] + (letter(a[i - 1]) != letter(b[k - 1])), least(before[k], row[k - 1]) + 1);
            if (crossed) row[k] = least(row[k], first[k - 2] + 1);
        }
    }
    return rows[n_a % 3][n_b];
}

static int distance(const char *word, const char *name) {
    size_t n_word = strlen(word), n_name = strlen(name);
    if (n_word > LONGEST || n_name > LONGEST) return FAR;
    int a = (int)n_word, b = (int)n_name, least = a < b ? a : b, most = a < b ? b : a, d = edits(word, a, name, b), same = 0;
    if (d <= MOST_EDITS && 2 * d <= most) return d;
    while (same < least && letter(word[same]) == letter(name[same])) same++;
    return same == least && least >= LEAST_BEGINNING ? MOST_EDITS + 1 : FAR;
}

int qn_nearest_names(const char *word, const char *(*name_at)(const void *user, int i), const void *user, int *nearest,
                     int most) {
    int far[MOST], n = 0;
    const char *name;
    if (!word || !name_at || !nearest) return 0;
    if (most > MOST) most = MOST;
    for (int i = 0; (name = name_at(user, i)) != NULL; i++) {
        int d = distance(word, name), at = n;
        while (at > 0 && far[at - 1] > d) at--; /* of equals the first stays in front */
        if (d == FAR || at >= most) continue;
        if (n < most) n++;
        for (int k = n - 1; k > at; k--) far[k] = far[k - 1], nearest[k] = nearest[k - 1];
        far[at] = d;
        nearest[at] = i;
    }
    return n;
}
