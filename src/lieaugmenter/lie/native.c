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

#define MAX_DIM 16   /* of vectors under one generator */
#define MAX_TERMS 32 /* of one series; `series_length` is 26 at the largest bound */
#define SMALL 4      /* the largest matrices of `points_forward` */
#define MAX_GENERATORS 16

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
