/* The hot loops of a training step on small vectors and points, for float32 on a CPU.
 *
 * Compiled on first use by lie/native.py; the torch code beside every caller gives the same numbers
 * and stays the reference. At these sizes torch's time is the number of its operations, not the
 * arithmetic, so a whole node of the graph is one call here.
 *
 * Arithmetic runs over tiles of LANES samples (or elements), one in each lane of a vector register,
 * so that it is fast whatever d is and no sum need be reordered. The lanes that the last tile leaves
 * over hold zeros. C99 but for the vector type, which GCC and Clang share.
 *
 * All arrays are contiguous, in the order of the axes that the comments give.
 */

#include <math.h>
#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float Lane __attribute__((vector_size(4 * LANES), may_alias));
typedef float Quad __attribute__((vector_size(16), may_alias));

#define MAX_DIM 16   /* of vectors under one generator */
#define MAX_TERMS 32 /* of one series; `series_length` is 26 at the largest bound */
#define SMALL 4      /* the largest matrices of `points_forward` */
#define MAX_GENERATORS 16
#define MAX_DOUBLINGS 130 /* the largest float is below 2^128 */

#define TOLERANCE (4.0 * 1.1920928955078125e-07) /* exponential._TRUNCATION, in float32 */
#define SHORTEST 1e-8f                           /* objective._SHORTEST */

static long at_most(long a, long b) { return a < b ? a : b; }

static float sign(float z) { return (float)((z > 0.0f) - (z < 0.0f)); }

/* The larger one; NaN once there is one. */
static double larger(double a, double b) { return b > a || b != b ? b : a; }

static double sum_of(const Lane *a) {
    double sum = 0.0;
    for (int l = 0; l < LANES; l++) sum += (*a)[l];
    return sum;
}

/* ---- Degrees of the series: the functions of the same name in lie/exponential.py. ---- */

long series_length(double bound) {
    double term = 1.0;
    for (long degree = 1; degree < MAX_TERMS; degree++) {
        term *= bound / (double)degree;
        double ratio = bound / (double)(degree + 1);
        if (ratio < 1.0 && term * ratio / (1.0 - ratio) < TOLERANCE) return degree;
    }
    return MAX_TERMS;
}

long squarings(double bound) {
    const double reach = pow(TOLERANCE * 362880.0, 1.0 / 9.0); /* 9! */
    double halvings = ceil(log2((bound > 1e-30 ? bound : 1e-30) / reach));
    return halvings > 0.0 ? (long)halvings : 0;
}

static double spectral_bound(const float *matrix, long d) {
    double squares = 0.0, by_columns = 0.0, by_rows = 0.0;
    for (long i = 0; i < d; i++) {
        double row = 0.0, column = 0.0;
        for (long j = 0; j < d; j++) {
            row += fabs(matrix[i * d + j]);
            column += fabs(matrix[j * d + i]);
            squares += (double)matrix[i * d + j] * matrix[i * d + j];
        }
        by_rows = larger(by_rows, row);
        by_columns = larger(by_columns, column);
    }
    double by_sums = sqrt(by_rows * by_columns), by_squares = sqrt(squares);
    return by_squares < by_sums ? by_squares : by_sums;
}

/* ---- Vectors under one generator: learning/vector_step.py. ---- */

/* Mask, then scale to a Frobenius norm: the generator, and the factor applied. */
static void normalise(const float *raw, const float *mask, double norm, long d, float *generator,
                      float *factor) {
    double squares = 0.0;
    for (long i = 0; i < d * d; i++) {
        float allowed = raw[i] * mask[i];
        squares += (double)allowed * allowed;
    }
    float scale = (float)(norm / sqrt(squares));
    for (long i = 0; i < d * d; i++) {
        factor[i] = mask[i] * scale;
        generator[i] = raw[i] * factor[i];
    }
}

/* `count` rows of d numbers, `stride` apart, as lanes. */
static void gather(const float *rows, long stride, long count, long d, Lane *to) {
    float *lanes = (float *)to;
    if (count < LANES) memset(to, 0, (size_t)d * sizeof(Lane));
    for (long l = 0; l < count; l++)
        for (long i = 0; i < d; i++) lanes[i * LANES + l] = rows[l * stride + i];
}

static void scatter(const Lane *from, long stride, long count, long d, float *rows) {
    const float *lanes = (const float *)from;
    for (long l = 0; l < count; l++)
        for (long i = 0; i < d; i++) rows[l * stride + i] = lanes[i * LANES + l];
}

/* x, L x, L² x, …: (length + 1, d), the first d of which are given. */
static void images(const float *generator, long d, long length, Lane *power) {
    for (long t = 1; t <= length; t++, power += d)
        for (long i = 0; i < d; i++) {
            Lane sum = generator[i * d] * power[0];
            for (long j = 1; j < d; j++) sum += generator[i * d + j] * power[j];
            power[d + i] = sum;
        }
}

/* w^t / t! for t = 0 … length, of one view of each sample. */
static void taylor_weights(const float *weights, long views, long count, long length,
                           Lane *taylor) {
    Lane w;
    gather(weights, views, count, 1, &w);
    for (int l = 0; l < LANES; l++) taylor[0][l] = 1.0f;
    for (long t = 1; t <= length; t++) taylor[t] = taylor[t - 1] * (w * (1.0f / (float)t));
}

/* Inputs of length 1 (or less, if shorter than SHORTEST): (size). */
static void units(const float *vectors, long stride, long count, long size, Lane *unit) {
    Lane squares = {0}, length;
    gather(vectors, stride, count, size, unit);
    for (long i = 0; i < size; i++) squares += unit[i] * unit[i];
    for (int l = 0; l < LANES; l++) {
        float root = sqrtf(squares[l]);
        length[l] = root < SHORTEST ? SHORTEST : root;
    }
    for (long i = 0; i < size; i++) unit[i] /= length;
}

/* Numbers before the tiles of `saved`: the generator and the factor, up to a whole lane. */
static long header(long d) { return (2 * d * d + LANES - 1) / LANES * LANES; }

/* How many floats `vectors_forward` leaves for `vectors_backward`: the header, and for each tile
 * the units (n_inputs, d), the moved inputs (n_inputs, views, d), cosines and lengths (views each). */
long vectors_saved(long batch, long views, long n_inputs, long d) {
    long tiles = (batch + LANES - 1) / LANES;
    return header(d) + tiles * LANES * (n_inputs * d * (views + 1) + 2 * views);
}

/* raw, mask (d, d); weights (batch, views); vectors (batch, n, d), the first n_inputs of which are
 * inputs, the others labels. Gives joined (batch · (views + 1), n_inputs, d), y_views
 * (batch, views, n - n_inputs, d), regularisers (2), saved; returns the length of the series. */
long vectors_forward(const float *raw, const float *mask, double norm, const float *weights,
                     const float *vectors, long batch, long views, long n, long n_inputs, long d,
                     double bound, float *joined, float *y_views, float *regularisers,
                     float *saved) {
    float *generator = saved;
    normalise(raw, mask, norm, d, generator, saved + d * d);
    double largest = 0.0, size = 0.0, cosines = 0.0;
    for (long i = 0; i < batch * views; i++) largest = larger(largest, fabs(weights[i]));
    for (long i = 0; i < d * d; i++) size += fabs(generator[i]);
    double measured = spectral_bound(generator, d) * largest;
    /* Non-finite numbers keep the bound that is known; their result is non-finite too. */
    long length = series_length(measured < bound ? measured : bound);

    const long inputs = n_inputs * d, labels = (n - n_inputs) * d;
    for (long b = 0; b < batch; b++)
        memcpy(joined + b * inputs, vectors + b * n * d, (size_t)inputs * sizeof(float));
    Lane *unit = (Lane *)(saved + header(d));
    for (long b = 0; b < batch; b += LANES, unit += inputs * (views + 1) + 2 * views) {
        const long count = at_most(LANES, batch - b);
        const float *here = vectors + b * n * d;
        Lane *moved_inputs = unit + inputs, *cosine = moved_inputs + views * inputs;
        Lane *view_length = cosine + views;
        Lane power[(MAX_TERMS + 1) * MAX_DIM], taylor[MAX_TERMS + 1], label[MAX_DIM];
        memset(cosine, 0, (size_t)(2 * views) * sizeof(Lane));
        units(here, n * d, count, inputs, unit);
        for (long j = 0; j < n; j++) {
            const int input = j < n_inputs;
            gather(here + j * d, n * d, count, d, power);
            images(generator, d, length, power);
            for (long k = 0; k < views; k++) {
                Lane *moved = input ? moved_inputs + (j * views + k) * d : label;
                taylor_weights(weights + b * views + k, views, count, length, taylor);
                for (long i = 0; i < d; i++) {
                    Lane sum = power[i];
                    for (long t = 1; t <= length; t++) sum += taylor[t] * power[t * d + i];
                    moved[i] = sum;
                }
                float *to = input ? joined + (batch + b * views + k) * inputs + j * d
                                  : y_views + (b * views + k) * labels + (j - n_inputs) * d;
                scatter(moved, views * (input ? inputs : labels), count, d, to);
                for (long i = 0; input && i < d; i++) {
                    cosine[k] += moved[i] * unit[j * d + i];
                    view_length[k] += moved[i] * moved[i];
                }
            }
        }
        float *cos = (float *)cosine, *root = (float *)view_length;
        for (long m = 0; m < views * LANES; m++) {
            root[m] = sqrtf(root[m]);
            root[m] = root[m] < SHORTEST ? SHORTEST : root[m];
            cos[m] /= root[m];
            cosines += fabsf(cos[m]);
        }
    }
    regularisers[0] = (float)(cosines / (double)(batch * views));
    regularisers[1] = (float)size;
    return length;
}

/* Gradients of the three outputs (each may be NULL: none) to that of raw. The gradient in L of
 * sum_t <h_t, L^t x> is sum_t a_t (L^(t-1) x)ᵀ with a_t = h_t + Lᵀ a_(t+1). */
void vectors_backward(const float *of_joined, const float *of_labels, const float *of_regularisers,
                      const float *saved, const float *weights, const float *vectors, long batch,
                      long views, long n, long n_inputs, long d, long length, double norm,
                      float *of_raw) {
    const float *generator = saved, *factor = saved + d * d;
    const long inputs = n_inputs * d, labels = (n - n_inputs) * d;
    const float of_cosine = of_regularisers ? of_regularisers[0] / (float)(batch * views) : 0.0f;
    const float of_size = of_regularisers ? of_regularisers[1] : 0.0f;
    Lane outer[MAX_DIM * MAX_DIM];
    memset(outer, 0, sizeof outer);
    const Lane *unit = (const Lane *)(saved + header(d));
    for (long b = 0; b < batch; b += LANES, unit += inputs * (views + 1) + 2 * views) {
        const long count = at_most(LANES, batch - b);
        const Lane *moved_inputs = unit + inputs, *cosine = moved_inputs + views * inputs;
        const Lane *view_length = cosine + views;
        Lane power[(MAX_TERMS + 1) * MAX_DIM], of_power[(MAX_TERMS + 1) * MAX_DIM];
        Lane taylor[MAX_TERMS + 1], gradient[MAX_DIM];
        for (long j = 0; j < n; j++) {
            const int input = j < n_inputs;
            const long stride = views * (input ? inputs : labels);
            const float *from = input ? of_joined : of_labels;
            if (from && input) from += (batch + b * views) * inputs + j * d;
            if (from && !input) from += b * views * labels + (j - n_inputs) * d;
            gather(vectors + (b * n + j) * d, n * d, count, d, power);
            images(generator, d, length, power);
            memset(of_power, 0, (size_t)((length + 1) * d) * sizeof(Lane));
            for (long k = 0; k < views; k++) {
                if (from)
                    gather(from + k * stride / views, stride, count, d, gradient);
                else
                    memset(gradient, 0, sizeof gradient);
                if (input) { /* d|cos|/dv = sign(cos) (unit - cos v / |v|) / |v| */
                    const Lane *moved = moved_inputs + (j * views + k) * d;
                    Lane slope = cosine[k] / view_length[k], scale;
                    for (int l = 0; l < LANES; l++) scale[l] = sign(cosine[k][l]);
                    scale = scale / view_length[k] * of_cosine;
                    for (long i = 0; i < d; i++)
                        gradient[i] += (unit[j * d + i] - moved[i] * slope) * scale;
                }
                taylor_weights(weights + b * views + k, views, count, length, taylor);
                for (long t = 1; t <= length; t++)
                    for (long i = 0; i < d; i++) of_power[t * d + i] += taylor[t] * gradient[i];
            }
            for (long t = length; t >= 1; t--)
                for (long i = 0; i < d; i++) {
                    Lane sum = of_power[t * d + i];
                    for (long r = 0; t < length && r < d; r++)
                        sum += generator[r * d + i] * of_power[(t + 1) * d + r];
                    of_power[t * d + i] = sum;
                    for (long r = 0; r < d; r++) outer[i * d + r] += sum * power[(t - 1) * d + r];
                }
        }
    }
    double along = 0.0;
    for (long i = 0; i < d * d; i++) {
        of_raw[i] = (float)sum_of(outer + i) + sign(generator[i]) * of_size;
        along += (double)of_raw[i] * generator[i];
    }
    float share = (float)(along / (norm * norm));
    for (long i = 0; i < d * d; i++) of_raw[i] = (of_raw[i] - generator[i] * share) * factor[i];
}

/* ---- The weighted sum of the four terms: vector_step.total. ---- */

/* to = a - b; returns the sum of the squares of `to`, or of its absolute values. */
static double subtract(const float *a, const float *b, long n, int squared, float *to) {
    double rest = 0.0;
    float sums[LANES] = {0};
    long i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float apart = a[i + l] - b[i + l];
            to[i + l] = apart;
            sums[l] += squared ? apart * apart : fabsf(apart);
        }
    for (; i < n; i++) {
        to[i] = a[i] - b[i];
        rest += squared ? to[i] * to[i] : fabsf(to[i]);
    }
    for (int l = 0; l < LANES; l++) rest += sums[l];
    return rest;
}

/* prediction (batch · (views + 1), out); y (batch, out); y_views (batch, views, out), or
 * (batch, 1, out) when all views share their label. Gives apart, like prediction: prediction minus
 * target; terms (4); total (1). */
void total_forward(const float *prediction, const float *y, const float *y_views, long shared,
                   const float *regularisers, const float *weights, long batch, long views,
                   long out, float *apart, float *terms, float *total) {
    double squares = subtract(prediction, y, batch * out, 1, apart), absolutes = 0.0;
    const float *moved = prediction + batch * out;
    float *to = apart + batch * out;
    if (!shared) absolutes = subtract(moved, y_views, batch * views * out, 0, to);
    for (long m = 0; shared && m < batch * views; m++)
        absolutes += subtract(moved + m * out, y_views + m / views * out, out, 0, to + m * out);
    terms[0] = (float)(squares / (double)batch);
    terms[1] = (float)(absolutes / (double)(batch * views));
    terms[2] = regularisers[0];
    terms[3] = regularisers[1];
    double sum = 0.0;
    for (int i = 0; i < 4; i++) sum += (double)terms[i] * weights[i];
    total[0] = (float)sum;
}

/* Gradients in prediction, y_views (NULL: not asked for) and regularisers. */
void total_backward(const float *of_total, const float *weights, const float *apart, long batch,
                    long views, long out, float *of_prediction, float *of_y_views,
                    float *of_regularisers) {
    const float direct = weights[0] * of_total[0] * (2.0f / (float)batch);
    const float moved = weights[1] * of_total[0] / (float)(batch * views);
    const long first = batch * out, rest = batch * views * out;
    for (long i = 0; i < first; i++) of_prediction[i] = apart[i] * direct;
    for (long i = first; i < first + rest; i++) of_prediction[i] = sign(apart[i]) * moved;
    for (long i = 0; of_y_views && i < rest; i++) of_y_views[i] = -of_prediction[first + i];
    of_regularisers[0] = weights[2] * of_total[0];
    of_regularisers[1] = weights[3] * of_total[0];
}

/* ---- Small matrices acting on points: _ManyGenerators of lie/exponential.py. ---- */

/* The degree-8 Taylor polynomial of exp in three products (Bader, Blanes and Casas, 2019). */
#define R 13.30413469565007 /* √177 */
#define X3 (2.0f / 3.0f)
#define X1 ((float)(2.0 / 3.0 * (1.0 + R) / 88.0))
#define X2 ((float)(2.0 / 3.0 * (1.0 + R) / 352.0))
#define X4 ((float)((-271.0 + 29.0 * R) / 210.0))
#define X5 ((float)(11.0 * (R - 1.0) / 840.0))
#define X6 ((float)(11.0 * (R - 9.0) / 3360.0))
#define X7 ((float)((89.0 - R) / 2240.0))
#define Y2 ((float)((857.0 - 58.0 * R) / 630.0))

/* A matrix of each element, (rows, d): rows below `rows` are zero and not kept. */
typedef Lane Matrix[SMALL * SMALL];

/* Everything on the way to exp(A) - I, which is the last of the chain. */
typedef struct {
    Matrix a, a2, p4, left, right, chain[MAX_DOUBLINGS + 1];
} Exponential;

/* The sizes that all functions here share. */
typedef struct {
    long d, rows, generators;
} Sizes;

/* A B. */
static void product(Sizes s, const Lane *a, const Lane *b, Lane *to) {
    for (long i = 0; i < s.rows; i++)
        for (long j = 0; j < s.d; j++) {
            Lane sum = a[i * s.d] * b[j];
            for (long k = 1; k < s.rows; k++) sum += a[i * s.d + k] * b[k * s.d + j];
            to[i * s.d + j] = sum;
        }
}

/* Add the gradient of A B with respect to A, which is G Bᵀ. */
static void add_of_left(Sizes s, const Lane *g, const Lane *b, Lane *to) {
    for (long i = 0; i < s.rows; i++)
        for (long k = 0; k < s.rows; k++)
            for (long j = 0; j < s.d; j++) to[i * s.d + k] += g[i * s.d + j] * b[k * s.d + j];
}

/* The gradient of A B with respect to B, which is Aᵀ G. */
static void of_right_factor(Sizes s, const Lane *a, const Lane *g, Lane *to) {
    for (long k = 0; k < s.rows; k++)
        for (long j = 0; j < s.d; j++) {
            Lane sum = a[k] * g[j];
            for (long i = 1; i < s.rows; i++) sum += a[i * s.d + k] * g[i * s.d + j];
            to[k * s.d + j] = sum;
        }
}

/* sum_i w_i L_i of `count` elements, and their coefficients as lanes. */
static void combine(Sizes s, const float *basis, const float *coefficients, long count, Lane *w,
                    Lane *a) {
    gather(coefficients, s.generators, count, s.generators, w);
    for (long m = 0; m < s.rows * s.d; m++) {
        Lane sum = basis[m] * w[0];
        for (long g = 1; g < s.generators; g++) sum += basis[g * s.d * s.d + m] * w[g];
        a[m] = sum;
    }
}

/* exp(A) - I by scaling and squaring; A is given in e->a and scaled. */
static const Lane *exponentiate(Sizes s, long doublings, Exponential *e) {
    const long size = s.rows * s.d;
    const float scale = ldexpf(1.0f, (int)-doublings);
    Lane a4[SMALL * SMALL];
    for (long m = 0; m < size; m++) e->a[m] *= scale;
    product(s, e->a, e->a, e->a2);
    for (long m = 0; m < size; m++) e->p4[m] = X1 * e->a[m] + X2 * e->a2[m];
    product(s, e->a2, e->p4, a4);
    for (long m = 0; m < size; m++) {
        e->left[m] = a4[m] + X3 * e->a2[m];
        e->right[m] = X5 * e->a[m] + X6 * e->a2[m] + X7 * a4[m];
    }
    product(s, e->left, e->right, e->chain[0]);
    for (long m = 0; m < size; m++) e->chain[0][m] += X4 * e->left[m] + e->a[m] + Y2 * e->a2[m];
    for (long t = 0; t < doublings; t++) { /* (I + X)² - I = X² + 2X */
        product(s, e->chain[t], e->chain[t], e->chain[t + 1]);
        for (long m = 0; m < size; m++) e->chain[t + 1][m] += 2.0f * e->chain[t][m];
    }
    return e->chain[doublings];
}

/* The gradient in exp(A) - I, overwritten by that in A. */
static void exponentiate_backward(Sizes s, long doublings, const Exponential *e, Lane *g) {
    const long size = s.rows * s.d;
    const float scale = ldexpf(1.0f, (int)-doublings);
    Matrix of_left, of_right, of_p4, of_a4, of_a2, of_a;
    for (long t = doublings - 1; t >= 0; t--) {
        of_right_factor(s, e->chain[t], g, of_a);
        for (long m = 0; m < size; m++) of_a[m] += 2.0f * g[m];
        add_of_left(s, g, e->chain[t], of_a);
        memcpy(g, of_a, (size_t)size * sizeof(Lane));
    }
    for (long m = 0; m < size; m++) of_left[m] = X4 * g[m];
    add_of_left(s, g, e->right, of_left);
    of_right_factor(s, e->left, g, of_right);
    for (long m = 0; m < size; m++) of_a4[m] = of_left[m] + X7 * of_right[m];
    of_right_factor(s, e->a2, of_a4, of_p4);
    for (long m = 0; m < size; m++)
        of_a2[m] = Y2 * g[m] + X3 * of_left[m] + X6 * of_right[m] + X2 * of_p4[m];
    add_of_left(s, of_a4, e->p4, of_a2);
    of_right_factor(s, e->a, of_a2, of_a);
    for (long m = 0; m < size; m++) of_a[m] += g[m] + X5 * of_right[m] + X1 * of_p4[m];
    add_of_left(s, of_a2, e->a, of_a);
    for (long m = 0; m < size; m++) g[m] = of_a[m] * scale;
}

/* Up to four numbers, the others zero. */
static Quad load(const float *from, long count) {
    Quad numbers = {0};
    if (count == SMALL)
        memcpy(&numbers, from, sizeof numbers);
    else
        for (long i = 0; i < count; i++) numbers[i] = from[i];
    return numbers;
}

/* Rows or columns of the matrix of one lane, exp(A) = I + (exp(A) - I). */
static void matrix_of(Sizes s, const Lane *less_identity, long lane, int columns, Quad *to) {
    const float *entries = (const float *)less_identity + lane;
    memset(to, 0, SMALL * sizeof(Quad));
    for (long i = 0; i < s.rows; i++)
        for (long j = 0; j < s.d; j++) {
            float entry = entries[(i * s.d + j) * LANES] + (i == j ? 1.0f : 0.0f);
            if (columns)
                to[j][i] = entry;
            else
                to[i][j] = entry;
        }
}

/* x (n, d) to M x (n, rows); M by its columns. */
static void act(Sizes s, const Quad *columns, const float *x, long n, float *moved) {
    for (long p = 0; p < n; p++, x += s.d, moved += s.rows) {
        Quad sum = columns[0] * x[0];
        for (long j = 1; j < s.d; j++) sum += columns[j] * x[j];
        /* Four at once where the next points overwrite what is too much. */
        if ((n - p) * s.rows >= SMALL)
            memcpy(moved, &sum, sizeof sum);
        else
            for (long i = 0; i < s.rows; i++) moved[i] = sum[i];
    }
}

/* Gradient of `act` in M, (rows, d), into one lane. */
static void act_of_matrix(Sizes s, const float *of_moved, const float *x, long n, long lane,
                          Lane *to) {
    Quad sums[SMALL] = {{0}};
    float *entries = (float *)to + lane;
    for (long p = 0; p < n; p++, x += s.d, of_moved += s.rows) {
        Quad point = load(x, s.d);
        for (long i = 0; i < s.rows; i++) sums[i] += of_moved[i] * point;
    }
    for (long i = 0; i < s.rows; i++)
        for (long j = 0; j < s.d; j++) entries[(i * s.d + j) * LANES] = sums[i][j];
}

/* Gradient of `act` in x, added; M by its rows. */
static void act_of_points(Sizes s, const float *of_moved, const Quad *rows, long n, float *of_x) {
    for (long p = 0; p < n; p++, of_x += s.d, of_moved += s.rows) {
        Quad sum = of_moved[0] * rows[0];
        for (long i = 1; i < s.rows; i++) sum += of_moved[i] * rows[i];
        for (long j = 0; j < s.d; j++) of_x[j] += sum[j];
    }
}

/* basis (generators, d, d); coefficients (batch, views, generators); x (batch, n, d). Gives moved
 * (batch, views, n, rows); returns the number of doublings. */
long points_forward(const float *basis, const float *coefficients, const float *x, long batch,
                    long views, long n, long generators, long d, long rows, float *moved) {
    const Sizes s = {d, rows, generators};
    const long elements = batch * views;
    Lane w[MAX_GENERATORS];
    Exponential e;
    double largest = 0.0;
    for (long first = 0; first < elements; first += LANES) {
        Lane squares = {0};
        combine(s, basis, coefficients + first * generators, at_most(LANES, elements - first), w,
                e.a);
        for (long m = 0; m < rows * d; m++) squares += e.a[m] * e.a[m];
        for (int l = 0; l < LANES; l++) largest = larger(largest, squares[l]);
    }
    const double norm = sqrt(largest);
    const long doublings = isfinite(norm) ? squarings(norm) : 0;
    for (long first = 0; first < elements; first += LANES) {
        const long count = at_most(LANES, elements - first);
        combine(s, basis, coefficients + first * generators, count, w, e.a);
        const Lane *result = exponentiate(s, doublings, &e);
        for (long l = 0; l < count; l++) {
            Quad columns[SMALL];
            matrix_of(s, result, l, 1, columns);
            act(s, columns, x + (first + l) / views * n * d, n, moved + (first + l) * n * rows);
        }
    }
    return doublings;
}

/* Gradients in the basis, the coefficients and x; NULL for one that is not asked for. What the
 * forward pass went through is computed again: that is faster than reading it from memory. */
void points_backward(const float *of_moved, const float *basis, const float *coefficients,
                     const float *x, long batch, long views, long n, long generators, long d,
                     long rows, long doublings, float *of_basis, float *of_coefficients,
                     float *of_x) {
    const Sizes s = {d, rows, generators};
    const long elements = batch * views;
    Lane sums[MAX_GENERATORS * SMALL * SMALL];
    Exponential e;
    memset(sums, 0, sizeof sums);
    if (of_x) memset(of_x, 0, (size_t)(batch * n * d) * sizeof(float));
    for (long first = 0; first < elements; first += LANES) {
        const long count = at_most(LANES, elements - first);
        Lane w[MAX_GENERATORS], of_w[MAX_GENERATORS];
        Matrix gradient;
        combine(s, basis, coefficients + first * generators, count, w, e.a);
        const Lane *result = exponentiate(s, doublings, &e);
        memset(gradient, 0, sizeof gradient);
        for (long l = 0; l < count; l++) {
            const long sample = (first + l) / views;
            const float *of_views = of_moved + (first + l) * n * rows;
            act_of_matrix(s, of_views, x + sample * n * d, n, l, gradient);
            if (of_x) {
                Quad by_rows[SMALL];
                matrix_of(s, result, l, 0, by_rows);
                act_of_points(s, of_views, by_rows, n, of_x + sample * n * d);
            }
        }
        if (!of_basis && !of_coefficients) continue;
        exponentiate_backward(s, doublings, &e, gradient);
        for (long g = 0; g < generators; g++) {
            of_w[g] = gradient[0] * basis[g * d * d];
            for (long m = 1; m < rows * d; m++) of_w[g] += gradient[m] * basis[g * d * d + m];
            for (long m = 0; m < rows * d; m++) sums[g * rows * d + m] += gradient[m] * w[g];
        }
        if (of_coefficients)
            scatter(of_w, generators, count, generators, of_coefficients + first * generators);
    }
    for (long g = 0; of_basis && g < generators; g++)
        for (long m = 0; m < d * d; m++)
            of_basis[g * d * d + m] =
                m < rows * d ? (float)sum_of(sums + g * rows * d + m) : 0.0f;
}
