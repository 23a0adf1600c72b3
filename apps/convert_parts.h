/* Parts of quern convert. */
#ifndef QN_APPS_CONVERT_PARTS_H
#define QN_APPS_CONVERT_PARTS_H

#include "quantize.h"

/* ---- Bytes that grow; `failed` sticks, so that a list of appends is checked once. */

typedef struct convert_bytes {
    char *at;
    size_t n, room;
    int failed;
} convert_bytes;

void convert_append(convert_bytes *b, const void *data, size_t bytes);
/* A string as GGUF packs it in arrays: its length, then its bytes. */
void convert_append_text(convert_bytes *b, const char *text, size_t bytes);
/* The whole file with a zero byte behind it; NULL with the error set. */
char *convert_read_file(const char *path, size_t *bytes, qn_error *error);

/* ---- The work */

enum { CONVERT_MOST_SOURCES = 1024 }; /* matrices stacked into one tensor */

typedef enum convert_change {
    CONVERT_AS_IS,
    CONVERT_GROUPS, /* 8-bit weights and scales of groups of them, as llama2.c has them */
    CONVERT_TURNED, /* rows of the output are columns of the input */
    CONVERT_BLOCKS  /* MXFP4 with scales beside it */
} convert_change;

/* Rows of the output that lie scattered: `per` heads of `head` rows of every `every`, from the `first` on. */
typedef struct convert_pick {
    int64_t rows, head, per, every, first;
} convert_pick;

/* A tensor of the output and where its rows come from. */
typedef struct convert_tensor {
    char *name;
    qn_tensor shape; /* of the output */
    qn_dtype from;
    convert_change change;
    int64_t heads;         /* whose halves become pairs; 0: they stay */
    convert_pick picks[3]; /* one behind the other */
    int n_picks;           /* 0: all rows as they lie */
    const void **sources;  /* stacked one after the other */
    const void **scales;   /* of GROUPS and BLOCKS: one for each source */
    int64_t group;
    int64_t width; /* of the input's rows, when TURNED */
    int32_t n_sources, n_set;
    int64_t rows_each, columns;
} convert_tensor;

typedef struct conversion {
    const char *in, *out, *tokenizer, *pre, *name;
    int auto_type;      /* weights keep the type they have */
    int no_map;         /* files are read, not mapped */
    quantize_model how; /* which type weights get */
    quantize_misses misses;
    qn_pool *pool;
    qn_writer *writer;
    convert_tensor *tensors;
    size_t n_tensors, room;
    void *names; /* those of the tensors, as a tree */
    uint64_t bytes;
    qn_error error;
} conversion;

/* The row of a source that row `row` of the output comes from. */
int64_t convert_source_row(const convert_tensor *t, int64_t row);
/* Adds an empty tensor of so many sources; NULL without memory. */
convert_tensor *convert_add(conversion *c, const char *name, int32_t n_sources);
/* The tensor of that name added so far, NULL when there is none; good until the next is added. */
convert_tensor *convert_find(conversion *c, const char *name);
void convert_free(conversion *c);

/* Keys; the writer remembers what goes wrong. */
void convert_put_number(conversion *c, const char *name, qn_key_type type, double v);
void convert_put_text(conversion *c, const char *name, const char *text, size_t bytes);
void convert_put_array(conversion *c, const char *name, qn_key_type item, uint64_t count, const convert_bytes *items);

/* Each reads its input, puts keys and adds tensors, whose sources it keeps until its close. */
typedef struct convert_llama2c convert_llama2c;
qn_status convert_llama2c_open(conversion *c, convert_llama2c **source);
void convert_llama2c_close(convert_llama2c *source);

typedef struct convert_hf convert_hf;
qn_status convert_hf_open(conversion *c, convert_hf **source);
void convert_hf_close(convert_hf *source);
void convert_hf_classes_print(FILE *to); /* all there are, for the help */

/* The folder where the parts of a Hugging Face model lie: IN, or the one its file is in. And whether config.json is among them. */
void convert_folder(const char *in, char folder[4096]);
int convert_has_config(const char *in);
/* A number at the first of some places ("a|b.c") of a JSON document that has one; 0 when none has. Strings and lists do not count. */
int convert_config(const qn_file *config, const char *places, qn_file_value *value);
/* FOLDER/NAME in `path`; NULL when that is too long. */
char *convert_path(char path[4096], const char *folder, const char *name);

/* The vocabulary of a Hugging Face folder, as keys. `vocab`: how many tokens the model has, 0 when unknown. */
qn_status convert_vocab(conversion *c, const char *folder, const qn_file *config, uint64_t weight_bytes, int64_t vocab);
/* A sentencepiece model: its pieces, and what it says of the text around them. */
enum { CONVERT_SPM_UNIGRAM = 1, CONVERT_SPM_BPE = 2, CONVERT_SPM_WORDS = 3 };
typedef struct convert_spm {
    convert_bytes tokens, scores, types; /* of count pieces */
    int64_t count;
    uint64_t kind;                   /* CONVERT_SPM_* */
    convert_bytes charsmap;          /* characters that others stand for; empty: none */
    uint64_t prefix, single, at_end; /* a space goes in front; of several one is left; words end with theirs */
} convert_spm;
qn_status convert_read_spm(const char *path, convert_spm *model, qn_error *error);

#endif
