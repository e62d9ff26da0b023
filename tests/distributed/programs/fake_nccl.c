/* NCCL's C interface over the memory of one machine, and streams and events of a pretended device: for tests.
 *
 * Streams are queues with a worker thread.  The ranks of a communicator share a file in /dev/shm.  Every call of a
 * non-blocking communicator is "in progress" for some polls, and refuses further calls until then, as NCCL may.
 * Ranks compare what they are about to do: different calls are an asynchronous error.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INTERNAL = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6, IN_PROGRESS = 7 };
enum { MOST = 8, SLOT = 1 << 16, POLLS = 3, SUMS = 5 };

static void nap(long ns) {
  struct timespec t = {0, ns};
  nanosleep(&t, NULL);
}

/* ***** streams and events ***** */

typedef struct Job {
  void (*run)(void *);
  void *data;
  struct Job *next;
} Job;

typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Job *first, *last;
  int busy;
} Stream;

typedef struct {
  atomic_int pending;
} Event;

static void *work(void *given) {
  Stream *s = given;
  pthread_mutex_lock(&s->lock);
  for (;;) {
    while (!s->first) pthread_cond_wait(&s->changed, &s->lock);
    Job *job = s->first;
    if (!(s->first = job->next)) s->last = NULL;
    s->busy = 1;
    pthread_mutex_unlock(&s->lock);
    job->run(job->data);
    free(job);
    pthread_mutex_lock(&s->lock);
    s->busy = 0;
    pthread_cond_broadcast(&s->changed);
  }
  return NULL;
}

static void put(Stream *s, void (*run)(void *), void *data) {
  Job *job = malloc(sizeof *job);
  *job = (Job){run, data, NULL};
  pthread_mutex_lock(&s->lock);
  if (s->last) s->last->next = job; else s->first = job;
  s->last = job;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

void *fake_stream(void) {
  Stream *s = calloc(1, sizeof *s);
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, work, s);
  pthread_detach(thread);
  return s;
}

int fake_stream_idle(Stream *s) {
  pthread_mutex_lock(&s->lock);
  int idle = !s->first && !s->busy;
  pthread_mutex_unlock(&s->lock);
  return idle;
}

void fake_stream_drain(Stream *s) {
  pthread_mutex_lock(&s->lock);
  while (s->first || s->busy) pthread_cond_wait(&s->changed, &s->lock);
  pthread_mutex_unlock(&s->lock);
}

void *fake_event(void) { return calloc(1, sizeof(Event)); }
static void reach(void *e) { atomic_fetch_sub(&((Event *)e)->pending, 1); }
static void await(void *e) { while (atomic_load(&((Event *)e)->pending)) nap(20000); }
void fake_event_record(Event *e, Stream *s) { atomic_fetch_add(&e->pending, 1); put(s, reach, e); }
int fake_event_done(Event *e) { return !atomic_load(&e->pending); }
void fake_stream_wait(Stream *s, Event *e) { put(s, await, e); }

typedef struct { float *at; int64_t count, ms; float value; } Fill;
static void fill(void *given) {
  Fill *f = given;
  nap(f->ms * 1000000L);
  for (int64_t k = 0; k < f->count; k++) f->at[k] = f->value;
  free(f);
}
/* Work of a stream that takes its time: floats are set after so many milliseconds. */
void fake_fill_later(Stream *s, float *at, int64_t count, float value, int64_t ms) {
  Fill *f = malloc(sizeof *f);
  *f = (Fill){at, count, ms, value};
  put(s, fill, f);
}

/* ***** communicators ***** */

typedef struct { char internal[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;

typedef struct {
  atomic_long seq[MOST], split_seq[MOST];             /* how many barriers a rank has reached */
  atomic_int arrived, failed;
  int64_t sign[MOST][6];             /* what a rank is about to do */
  int colors[MOST], keys[MOST];
  atomic_long sent[MOST][MOST], got[MOST][MOST];  /* pieces from a rank to another one */
  long piece[MOST][MOST];
  unsigned char slots[MOST][SLOT], boxes[MOST][MOST][SLOT];
} Shared;

typedef struct {
  int rank, n, blocking;
  char name[200];
  Shared *shared;
  atomic_int state, polls, abort, ready;
  int splits, factors;
  double factor[16];
} Comm;

static atomic_int injected;          /* an error that the next look at any communicator finds */
static char last[256] = "";
void fake_nccl_inject(int code) { atomic_store(&injected, code); }

const char *ncclGetLastError(void *comm) { return last; }
int ncclGetVersion(int *version) { *version = 22703; return OK; }
int ncclGetUniqueId(Id *id) {
  static atomic_int count;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "fake_nccl_%d_%d", (int)getpid(), atomic_fetch_add(&count, 1));
  return OK;
}

static void begin_call(Comm *c) { atomic_store(&c->polls, POLLS); }
static int busy(Comm *c) {
  if (atomic_load(&c->state) != OK) return atomic_load(&c->state) == IN_PROGRESS ? INVALID_USAGE : atomic_load(&c->state);
  return !c->blocking && atomic_load(&c->polls) > 0 ? INVALID_USAGE : OK;
}

/* Splits are counted apart: their calls do not wait for what is on the streams. */
static int meet(Comm *c, atomic_long *seq) {
  Shared *s = c->shared;
  long mine = atomic_fetch_add(&seq[c->rank], 1) + 1;
  for (int k = 0; k < c->n; k++)
    while (atomic_load(&seq[k]) < mine) {
      if (atomic_load(&c->abort)) return INTERNAL;
      if (atomic_load(&s->failed)) { atomic_store(&c->state, atomic_load(&s->failed)); return REMOTE; }
      nap(10000);
    }
  return OK;
}

static int barrier(Comm *c) { return meet(c, c->shared->seq); }

static Shared *map_shared(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "/dev/shm/%s", name);
  int file = open(path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared))) return NULL;
  Shared *found = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return found == MAP_FAILED ? NULL : found;
}

static void *join(void *given) {
  Comm *c = given;
  if (barrier(c) == OK) {
    char path[256];
    snprintf(path, sizeof path, "/dev/shm/%s", c->name);
    if (c->rank == 0) unlink(path);
    atomic_store(&c->state, OK);
  }
  return NULL;
}

int ncclCommInitRankConfig(Comm **out, int n, Id id, int rank, Config *config) {
  if (n > MOST || rank < 0 || rank >= n || config->magic != 0xcafebeef || config->size < sizeof(Config)) {
    snprintf(last, sizeof last, "bad rank %d of %d, or settings", rank, n);
    return INVALID_ARGUMENT;
  }
  Comm *c = *out = calloc(1, sizeof *c);
  c->rank = rank, c->n = n, c->blocking = config->blocking;
  snprintf(c->name, sizeof c->name, "%s", id.internal);
  atomic_store(&c->state, IN_PROGRESS);
  if (!(c->shared = map_shared(c->name))) return INTERNAL;
  pthread_t thread;
  pthread_create(&thread, NULL, join, c);
  pthread_detach(thread);
  return c->blocking ? OK : IN_PROGRESS;
}

typedef struct { Comm *parent, *made; int color, key; } Split;
static void *do_split(void *given) {
  Split *w = given;
  Comm *p = w->parent, *c = w->made;
  p->shared->colors[p->rank] = w->color, p->shared->keys[p->rank] = w->key;
  if (meet(p, p->shared->split_seq) != OK) return NULL;
  int first = -1;
  for (int k = 0; k < p->n; k++)
    if (p->shared->colors[k] == w->color) {
      if (first < 0) first = k;
      c->n++;
      c->rank += p->shared->keys[k] < w->key;
    }
  if (meet(p, p->shared->split_seq) != OK) return NULL;
  atomic_store(&p->state, OK);
  if (w->color >= 0) {
    snprintf(c->name, sizeof c->name, "%.120s_%d_%d", p->name, p->splits, w->color);
    c->shared = map_shared(c->name);
    join(c);
  }
  return NULL;
}

int ncclCommSplit(Comm *p, int color, int key, Comm **out, Config *config) {
  int code = busy(p);
  if (code) return code;
  Split *w = malloc(sizeof *w);
  Comm *c = calloc(1, sizeof *c);
  c->blocking = config->blocking;
  *out = color < 0 ? NULL : c;
  p->splits++;
  *w = (Split){p, c, color, key};
  atomic_store(&p->state, IN_PROGRESS);
  atomic_store(&c->state, IN_PROGRESS);
  pthread_t thread;
  pthread_create(&thread, NULL, do_split, w);
  pthread_detach(thread);
  return IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm *c, int *out) {
  int code = atomic_load(&injected);
  if (code) { snprintf(last, sizeof last, "a link is down"); atomic_store(&c->state, code); atomic_store(&c->shared->failed, code); }
  *out = atomic_load(&c->state);
  if (*out == OK && atomic_load(&c->polls) > 0) { atomic_fetch_sub(&c->polls, 1); *out = IN_PROGRESS; }
  return OK;
}
int ncclCommFinalize(Comm *c) { begin_call(c); return IN_PROGRESS; }
int ncclCommDestroy(Comm *c) { munmap(c->shared, sizeof(Shared)); return OK; }
int ncclCommAbort(Comm *c) {
  char path[256];
  snprintf(path, sizeof path, "/dev/shm/%s", c->name);
  unlink(path);  /* of a communicator that not all ranks joined */
  atomic_store(&c->abort, 1);
  return OK;
}
int ncclRedOpCreatePreMulSum(int *op, void *scalar, int dtype, int residence, Comm *c) {
  if (residence != 1) return INVALID_ARGUMENT;
  uint16_t half;
  double f = 0;
  if (dtype == 7) f = *(float *)scalar;
  else if (dtype == 8) f = *(double *)scalar;
  else if (dtype == 9) { memcpy(&half, scalar, 2); uint32_t bits = (uint32_t)half << 16; float g; memcpy(&g, &bits, 4); f = g; }
  else if (dtype == 6) f = *(_Float16 *)scalar;
  else return INVALID_ARGUMENT;
  for (int k = 0; k < 16; k++)
    if (c->factor[k] == 0) { c->factor[k] = f; c->factors++; *op = SUMS + k; return OK; }
  return INTERNAL;  /* never given back */
}
int ncclRedOpDestroy(int op, Comm *c) { c->factor[op - SUMS] = 0; c->factors--; return OK; }

/* ***** operations ***** */

enum { ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER, SEND, RECV };
static const int SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

typedef struct Op {
  int kind, dtype, op, root;
  const char *from;
  char *to;
  int64_t count;
  double factor;
  long piece;
  Comm *c;
  struct Op *next;
} Op;

static double read_number(const char *at, int dtype) {
  uint16_t half;
  switch (dtype) {
    case 6: return *(const _Float16 *)at;
    case 7: return *(const float *)at;
    case 8: return *(const double *)at;
    case 9: { memcpy(&half, at, 2); uint32_t bits = (uint32_t)half << 16; float f; memcpy(&f, &bits, 4); return f; }
  }
  return 0;
}
static void write_number(char *at, int dtype, double v) {
  if (dtype == 6) *(_Float16 *)at = v;
  if (dtype == 7) *(float *)at = v;
  if (dtype == 8) *(double *)at = v;
  if (dtype == 9) {
    float f = v; uint32_t bits; memcpy(&bits, &f, 4);
    uint16_t half = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; memcpy(at, &half, 2);
  }
}
static int64_t read_integer(const char *at, int dtype) {
  switch (dtype) {
    case 0: return *(const int8_t *)at;
    case 1: return *(const uint8_t *)at;
    case 2: return *(const int32_t *)at;
    case 3: return *(const uint32_t *)at;
  }
  return *(const int64_t *)at;
}

#define FOLD(T, first, read) { T a = first; for (int r = 1; r < n; r++) { T b = read; \
  a = op == 1 ? a * b : op == 2 ? (b > a ? b : a) : op == 3 ? (b < a ? b : a) : a + b; } v = a; }

/* One element of all ranks' slots becomes one. */
static void fold(Op *o, char *to, int64_t k) {
  Shared *s = o->c->shared;
  int n = o->c->n, op = o->op, size = SIZES[o->dtype];
  if (o->dtype >= 6) {
    double v, f = op >= SUMS ? o->factor : 1;
    FOLD(double, f * read_number((char *)s->slots[0] + k * size, o->dtype), f * read_number((char *)s->slots[r] + k * size, o->dtype))
    write_number(to, o->dtype, op == 4 ? v / n : v);
  } else {
    int64_t v;
    FOLD(int64_t, read_integer((char *)s->slots[0] + k * size, o->dtype), read_integer((char *)s->slots[r] + k * size, o->dtype))
    if (op == 4) v /= n;
    memcpy(to, &v, size);
  }
}

static int agree(Op *o) {
  Shared *s = o->c->shared;
  int64_t sign[6] = {o->kind, o->dtype, o->op, o->root, o->count, 0};
  memcpy(s->sign[o->c->rank], sign, sizeof sign);
  int code = barrier(o->c);
  if (code) return code;
  for (int k = 0; k < o->c->n; k++)
    if (memcmp(s->sign[k], sign, sizeof sign)) {
      atomic_store(&s->failed, INVALID_USAGE);
      atomic_store(&o->c->state, INVALID_USAGE);
      return INVALID_USAGE;
    }
  return barrier(o->c);
}

static int collective(Op *o) {
  Comm *c = o->c;
  Shared *s = c->shared;
  int size = SIZES[o->dtype], code = agree(o);
  int64_t total = o->kind == REDUCE_SCATTER ? o->count * c->n : o->count, most = SLOT / size;
  for (int64_t at = 0; !code && at < total; at += most) {
    int64_t n = total - at < most ? total - at : most;
    if (o->kind != BROADCAST || c->rank == o->root) memcpy(s->slots[c->rank], o->from + at * size, n * size);
    if ((code = barrier(c))) return code;
    for (int64_t k = 0; k < n; k++) {
      int64_t place = at + k;
      if (o->kind == ALL_REDUCE || (o->kind == REDUCE && c->rank == o->root)) fold(o, o->to + place * size, k);
      if (o->kind == REDUCE_SCATTER && place / o->count == c->rank) fold(o, o->to + place % o->count * size, k);
    }
    if (o->kind == BROADCAST) memcpy(o->to + at * size, s->slots[o->root], n * size);
    for (int r = 0; o->kind == ALL_GATHER && r < c->n; r++)
      memcpy(o->to + (r * o->count + at) * size, s->slots[r], n * size);
    code = barrier(c);
  }
  return code;
}

/* A step of a message: 1 when it is done. */
static int move(Op *o) {
  Comm *c = o->c;
  Shared *s = c->shared;
  int from = o->kind == SEND ? c->rank : o->root, to = o->kind == SEND ? o->root : c->rank;
  int64_t bytes = o->count * SIZES[o->dtype], at = o->piece * SLOT, n = bytes - at < SLOT ? bytes - at : SLOT;
  if (at >= bytes && (bytes || o->piece)) return 1;
  if (o->kind == SEND) {
    if (atomic_load(&s->sent[from][to]) > atomic_load(&s->got[from][to])) return 0;
    s->piece[from][to] = bytes;
    memcpy(s->boxes[from][to], o->from + at, n);
    atomic_fetch_add(&s->sent[from][to], 1);
  } else {
    if (atomic_load(&s->sent[from][to]) == atomic_load(&s->got[from][to])) return 0;
    if (s->piece[from][to] != bytes) { atomic_store(&c->state, INVALID_USAGE); return 1; }
    memcpy(o->to + at, s->boxes[from][to], n);
    atomic_fetch_add(&s->got[from][to], 1);
  }
  o->piece++;
  return o->piece * SLOT >= bytes;
}

static void perform(void *given) {
  int left = 1;
  for (Op *o = given; o; o = o->next)
    if (o->kind < SEND && collective(o)) goto end;
  while (left) {
    left = 0;
    for (Op *o = given; o; o = o->next) {
      if (o->kind < SEND || o->root < 0) continue;
      if (atomic_load(&o->c->abort)) goto end;
      int before = 0;  /* messages between two ranks keep their order */
      for (Op *p = given; p != o; p = p->next) before |= p->kind == o->kind && p->root == o->root;
      if (!before && move(o)) o->root = -1;
      left |= o->root >= 0;
    }
    if (left) nap(10000);
  }
end:
  for (Op *o = given, *next; o; o = next) next = o->next, free(o);
}

static __thread int depth;
static __thread Op *first, *end;
static __thread Stream *grouped;

static int issue(Op given, Stream *stream) {
  int code = busy(given.c);
  if (code && !depth) return code;
  if (given.op >= SUMS && (given.factor = given.c->factor[given.op - SUMS]) == 0) return INVALID_ARGUMENT;
  Op *o = malloc(sizeof *o);
  *o = given;
  if (depth) {
    if (grouped && grouped != stream) return INVALID_USAGE;
    grouped = stream;
    if (end) end->next = o; else first = o;
    end = o;
    return OK;
  }
  put(stream, perform, o);
  begin_call(given.c);
  return IN_PROGRESS;
}

int ncclGroupStart(void) { depth++; return OK; }
int ncclGroupEnd(void) {
  if (--depth || !first) return OK;
  Comm *c = first->c;
  Op *all = first;
  Stream *stream = grouped;
  first = end = NULL, grouped = NULL;
  int code = busy(c);
  if (code) return code;
  put(stream, perform, all);
  begin_call(c);
  return IN_PROGRESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int dtype, int op, Comm *c, Stream *s) {
  return issue((Op){ALL_REDUCE, dtype, op, 0, from, to, count, 0, 0, c, NULL}, s);
}
int ncclReduce(const void *from, void *to, size_t count, int dtype, int op, int root, Comm *c, Stream *s) {
  return issue((Op){REDUCE, dtype, op, root, from, to, count, 0, 0, c, NULL}, s);
}
int ncclReduceScatter(const void *from, void *to, size_t count, int dtype, int op, Comm *c, Stream *s) {
  return issue((Op){REDUCE_SCATTER, dtype, op, 0, from, to, count, 0, 0, c, NULL}, s);
}
int ncclBroadcast(const void *from, void *to, size_t count, int dtype, int root, Comm *c, Stream *s) {
  return issue((Op){BROADCAST, dtype, 0, root, from, to, count, 0, 0, c, NULL}, s);
}
int ncclAllGather(const void *from, void *to, size_t count, int dtype, Comm *c, Stream *s) {
  return issue((Op){ALL_GATHER, dtype, 0, 0, from, to, count, 0, 0, c, NULL}, s);
}
int ncclSend(const void *from, size_t count, int dtype, int to, Comm *c, Stream *s) {
  return issue((Op){SEND, dtype, 0, to, from, NULL, count, 0, 0, c, NULL}, s);
}
int ncclRecv(void *to, size_t count, int dtype, int from, Comm *c, Stream *s) {
  return issue((Op){RECV, dtype, 0, from, NULL, to, count, 0, 0, c, NULL}, s);
}
