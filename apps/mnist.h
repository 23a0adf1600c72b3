/* The MNIST files: idx, plain or gzip. */
#ifndef QN_APPS_MNIST_H
#define QN_APPS_MNIST_H

#include <stdint.h>

typedef struct mnist_set {
    uint32_t n;
    uint8_t *pixels; /* 784 for each image */
    uint8_t *labels; /* 0 to 9 */
} mnist_set;

/* Reads DIR/<which>-images-idx3-ubyte and -labels-idx1-ubyte, or the same with .gz; at most `most` images, 0 for all. Says what is
 * wrong and returns 0. */
int mnist_read(const char *dir, const char *which, uint32_t most, mnist_set *set);
void mnist_free(mnist_set *set);

#endif
