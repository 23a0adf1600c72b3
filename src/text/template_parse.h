/* What the files that read templates share: the reader's place, and its tokens. */
#ifndef QN_TEXT_TEMPLATE_PARSE_H
#define QN_TEXT_TEMPLATE_PARSE_H

#include "text/template.h"

typedef enum tpl_token_kind { T_END, T_NAME, T_STRING, T_INT, T_FLOAT, T_OP, T_CLOSE } tpl_token_kind; /* T_CLOSE: of the block */

typedef struct tpl_token {
    tpl_token_kind kind;
    qn_text text; /* STRING: without escapes */
    int line;
} tpl_token;

enum { TPL_MOST_NESTING = 150 };

typedef struct tpl_parser {
    tpl *t;
    const char *at, *end;
    const char *line_from; /* lines are counted up to here */
    int line;
    int in_block;   /* 0: in text; '%' or '{': in a block of that kind */
    int open;       /* brackets of the block that are open: no block ends inside them */
    int strip_next; /* the text behind the block loses: 1 its white space, 2 one line end */
    tpl_token now;
    int depth;
} tpl_parser;

/* Sets the fault, with the text it is near to if there is one, and goes to the end; always NULL. */
tpl_node *qn_text_tpl_parse_fail(tpl_parser *p, int line, const char *what, qn_text near);
tpl_node *qn_text_tpl_parse_node(tpl_parser *p, tpl_node_kind kind, int line);
int qn_text_tpl_line_at(tpl_parser *p, const char *at);

void qn_text_tpl_advance(tpl_parser *p); /* the next token into p->now */
int qn_text_tpl_at_op(const tpl_parser *p, const char *op);
int qn_text_tpl_at_name(const tpl_parser *p, const char *name);
int qn_text_tpl_take_op(tpl_parser *p, const char *op);
int qn_text_tpl_take_name(tpl_parser *p, const char *name);
int qn_text_tpl_want_op(tpl_parser *p, const char *op); /* or a fault */

#define TPL_NOTHING ((qn_text){"", 0})

/* template_expr.c: NULL after a fault */
tpl_node *qn_text_tpl_parse_expression(tpl_parser *p);
tpl_node *qn_text_tpl_parse_or(tpl_parser *p); /* without "a if b else c" */
tpl_node *qn_text_tpl_parse_postfix(tpl_parser *p);
tpl_node *qn_text_tpl_parse_filter(tpl_parser *p, tpl_node *of);

#endif
