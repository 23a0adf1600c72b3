/* Tells stories by the tables of stories.def. A story is a walk over the beats of its kind, with the people and things of that story
 * put in their places, so that what was lost in the second line is what is found in the sixth. */
#include <string.h>

#include "splitmix.h"
#include "stories.h"

typedef enum story_beat {
    beat_open,
    beat_about,
    beat_start,
    beat_next,
    beat_meet,
    beat_act,
    beat_turn,
    beat_end,
    beat_last,
    BEATS
} story_beat;
typedef enum story_kind {
    kind_all,
    kind_lost,
    kind_friend,
    kind_storm,
    kind_share,
    kind_build,
    kind_dark,
    kind_seed,
    kind_rescue,
    KINDS
} story_kind;

typedef struct story_line {
    story_kind kind;
    story_beat beat;
    const char *text;
} story_line;

typedef struct story_who {
    const char *name;
    int is_she;
} story_who;

typedef enum story_slot {
#define STORY_WHO(name, is_she)
#define STORY_CHOICE(slot, words) slot_##slot,
#define STORY_LINE(kind, beat, text)
#include "stories.def"
#undef STORY_CHOICE
    SLOTS
} story_slot;

static const struct {
    const char *name, *words;
} choices[] = {
#define STORY_CHOICE(slot, words) {#slot, words},
#include "stories.def"
#undef STORY_CHOICE
};

static const story_line lines[] = {
#undef STORY_LINE
#define STORY_CHOICE(slot, words)
#define STORY_LINE(kind, beat, text) {kind_##kind, beat_##beat, text},
#include "stories.def"
#undef STORY_LINE
};

static const story_who people[] = {
#undef STORY_WHO
#define STORY_LINE(kind, beat, text)
#define STORY_WHO(name, is_she) {name, is_she},
#include "stories.def"
#undef STORY_WHO
#undef STORY_CHOICE
#undef STORY_LINE
};

enum { N_LINES = sizeof lines / sizeof *lines, N_PEOPLE = sizeof people / sizeof *people };

typedef struct story {
    uint64_t *random;
    char *text;
    size_t n, article; /* article: where the n of "an" would go, 0 when none waits */
    const story_who *who[2];
    qn_text is[2]; /* what they are */
    qn_text choice[SLOTS];
} story;

static uint64_t below(story *s, uint64_t n) { return splitmix(s->random) % n; }

static void put(story *s, char c) {
    if (s->article && c != ' ') {
        if (strchr("aeiou", c) && s->n + 1 < STORY_BYTES) {
            s->text[s->article] = 'n';
            s->text[s->n++] = ' ';
        }
        s->article = 0;
    }
    if (s->n + 1 < STORY_BYTES) s->text[s->n++] = c;
}

static void put_text(story *s, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) put(s, text[i]);
}

/* One of the words between bars. */
static qn_text pick(story *s, const char *words, size_t n) {
    uint64_t count = 1, which;
    for (size_t i = 0; i < n; i++) count += words[i] == '|';
    which = below(s, count);
    const char *at = words, *end = words + n;
    for (; which; which--) at = (const char *)memchr(at, '|', (size_t)(end - at)) + 1;
    const char *bar = memchr(at, '|', (size_t)(end - at));
    return (qn_text){at, (size_t)((bar ? bar : end) - at)};
}

static int is_word(qn_text t, const char *word) { return strlen(word) == t.length && memcmp(t.at, word, t.length) == 0; }

/* A pronoun of the hero, or with an f in front of the friend; 0 when it is none. */
static int put_pronoun(story *s, qn_text name) {
    static const char *const words[5][3] = {
        {"he", "he", "she"}, {"him", "him", "her"}, {"his", "his", "her"}, {"He", "He", "She"}, {"His", "His", "Her"}};
    char plain[8] = "";
    int of_friend = name.length > 2 && (name.at[0] == 'f' || name.at[0] == 'F');
    if (name.length >= sizeof plain) return 0;
    memcpy(plain, name.at + of_friend, name.length - (size_t)of_friend);
    if (of_friend && name.at[0] == 'F') plain[0] = 'H';
    for (int i = 0; i < 5; i++)
        if (strcmp(plain, words[i][0]) == 0) {
            const char *word = words[i][1 + s->who[of_friend]->is_she];
            put_text(s, word, strlen(word));
            return 1;
        }
    return 0;
}

static void put_slot(story *s, qn_text name) {
    if (is_word(name, "H") || is_word(name, "F")) {
        const char *who = s->who[name.at[0] == 'F']->name;
        put_text(s, who, strlen(who));
    } else if (is_word(name, "kind") || is_word(name, "friend")) {
        qn_text what = s->is[name.at[0] == 'f'];
        put_text(s, what.at, what.length);
    } else if (is_word(name, "a")) {
        put(s, 'a');
        s->article = s->n;
    } else if (!put_pronoun(s, name)) {
        for (int i = 0; i < SLOTS; i++)
            if (is_word(name, choices[i].name)) put_text(s, s->choice[i].at, s->choice[i].length);
    }
}

static void put_line(story *s, const char *line) {
    while (*line) {
        const char *end = *line == '{' ? strchr(line, '}') : *line == '[' ? strchr(line, ']') : NULL;
        if (!end) {
            put(s, *line++);
            continue;
        }
        qn_text inside = {line + 1, (size_t)(end - line - 1)};
        if (*line == '{') {
            put_slot(s, inside);
        } else {
            qn_text word = pick(s, inside.at, inside.length);
            put_text(s, word.at, word.length);
        }
        line = end + 1;
    }
}

static void tell_beat(story *s, story_kind kind, story_beat beat) {
    uint64_t count = 0, which;
    for (int i = 0; i < N_LINES; i++) count += lines[i].beat == beat && (lines[i].kind == kind || lines[i].kind == kind_all);
    which = below(s, count);
    if (s->n) put(s, beat == beat_start || beat == beat_turn ? '\n' : ' ');
    for (int i = 0; i < N_LINES; i++)
        if (lines[i].beat == beat && (lines[i].kind == kind || lines[i].kind == kind_all) && !which--) put_line(s, lines[i].text);
}

/* A third of all people are children, the others animals; no two of a story are the same kind of animal. */
static void cast(story *s) {
    uint64_t first = below(s, N_PEOPLE), second = below(s, N_PEOPLE - 1);
    s->who[0] = &people[first];
    s->who[1] = &people[second < first ? second : second + 1];
    for (int i = 0; i < SLOTS; i++) s->choice[i] = pick(s, choices[i].words, strlen(choices[i].words));
    while (s->choice[slot_animal2].at - choices[slot_animal2].words == s->choice[slot_animal].at - choices[slot_animal].words)
        s->choice[slot_animal2] = pick(s, choices[slot_animal2].words, strlen(choices[slot_animal2].words));
    for (int i = 0; i < 2; i++) {
        qn_text child = s->who[i]->is_she ? (qn_text){"girl", 4} : (qn_text){"boy", 3};
        s->is[i] = below(s, 3) ? s->choice[i ? slot_animal2 : slot_animal] : child;
    }
}

size_t story_tell(uint64_t *state, char text[STORY_BYTES]) {
    story s;
    memset(&s, 0, sizeof s);
    s.random = state;
    s.text = text;
    cast(&s);
    story_kind kind = (story_kind)(1 + below(&s, KINDS - 1));
    for (int beat = 0; beat < BEATS; beat++) tell_beat(&s, kind, (story_beat)beat);
    text[s.n] = 0;
    return s.n;
}
