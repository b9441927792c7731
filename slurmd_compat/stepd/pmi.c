#include "mover.h"
#include <stdlib.h>
struct pmi {
    int epoll;
};
struct pmi *pmi_open(const struct spec *s, const struct channel *channels)
{
    (void)s;
    (void)channels;
    struct pmi *p = calloc(1, sizeof *p);
    if (p)
        p->epoll = -1;
    return p;
}
int pmi_epoll(const struct pmi *p)
{
    return p->epoll;
}
void pmi_turn(struct pmi *p, struct wire *w)
{
    (void)p;
    (void)w;
}
void pmi_exchanged(struct pmi *p, uint32_t round, const unsigned char *data, size_t n)
{
    (void)p;
    (void)round;
    (void)data;
    (void)n;
}
