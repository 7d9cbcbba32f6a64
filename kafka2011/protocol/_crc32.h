/* CRC-32 with zlib's polynomial, fast on messages of a few hundred bytes, without any library.
 *
 * Two implementations, one result. On x86-64 with carry-less multiplication (every server since
 * about 2010; asked of the processor at start) the bytes are folded 64 at a time, after Gopal and
 * others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
 * Elsewhere, and for ends of less than 16 bytes, tables take 16 or 8 bytes a step.
 *
 * kafka2011_crc32_start() must be called once before anything else.
 */
#ifndef KAFKA2011_CRC32_H
#define KAFKA2011_CRC32_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define KAFKA2011_CRC32_CAN_FOLD 1
#include <immintrin.h>
#else
#define KAFKA2011_CRC32_CAN_FOLD 0
#endif

/* tables[k][b]: the effect of byte b when k more bytes follow it in the step. */
static uint32_t kafka2011_crc32_tables[16][256];
static int kafka2011_crc32_folds = 0;

static void kafka2011_crc32_start(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
        kafka2011_crc32_tables[0][byte] = crc;
    }
    for (int later = 1; later < 16; later++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = kafka2011_crc32_tables[later - 1][byte];
            kafka2011_crc32_tables[later][byte] =
                (crc >> 8) ^ kafka2011_crc32_tables[0][crc & 0xff];
        }
#if KAFKA2011_CRC32_CAN_FOLD
    __builtin_cpu_init();
    kafka2011_crc32_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* Four bytes as a little-endian number, whatever this machine's order; one load where possible. */
static inline uint32_t kafka2011_load_le32(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* `crc` is the running value, not yet inverted; so is the result. */
static inline uint32_t kafka2011_crc32_by_tables(const unsigned char *data, size_t size,
                                                 uint32_t crc) {
    const uint32_t (*const table)[256] = (const uint32_t (*)[256])kafka2011_crc32_tables;
    while (size >= 16) {
        uint32_t a = kafka2011_load_le32(data) ^ crc;
        uint32_t b = kafka2011_load_le32(data + 4);
        uint32_t c = kafka2011_load_le32(data + 8);
        uint32_t d = kafka2011_load_le32(data + 12);
        crc = table[15][a & 0xff] ^ table[14][(a >> 8) & 0xff] ^ table[13][(a >> 16) & 0xff] ^
              table[12][a >> 24] ^ table[11][b & 0xff] ^ table[10][(b >> 8) & 0xff] ^
              table[9][(b >> 16) & 0xff] ^ table[8][b >> 24] ^ table[7][c & 0xff] ^
              table[6][(c >> 8) & 0xff] ^ table[5][(c >> 16) & 0xff] ^ table[4][c >> 24] ^
              table[3][d & 0xff] ^ table[2][(d >> 8) & 0xff] ^ table[1][(d >> 16) & 0xff] ^
              table[0][d >> 24];
        data += 16;
        size -= 16;
    }
    if (size >= 8) {
        uint32_t a = kafka2011_load_le32(data) ^ crc;
        uint32_t b = kafka2011_load_le32(data + 4);
        crc = table[7][a & 0xff] ^ table[6][(a >> 8) & 0xff] ^ table[5][(a >> 16) & 0xff] ^
              table[4][a >> 24] ^ table[3][b & 0xff] ^ table[2][(b >> 8) & 0xff] ^
              table[1][(b >> 16) & 0xff] ^ table[0][b >> 24];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = (crc >> 8) ^ table[0][(crc ^ *data++) & 0xff];
    return crc;
}

#if KAFKA2011_CRC32_CAN_FOLD
/* One step of folding: the 128 bits of `high` moved `k` bits on, onto `next`. */
#define KAFKA2011_FOLD(lane, k, next)                                                            \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, k, 0x00),                              \
                                _mm_clmulepi64_si128(lane, k, 0x11)),                             \
                  next)
#define KAFKA2011_LOAD(at) _mm_loadu_si128((const __m128i *)(at))

/* `size` is at least 16. The constants are powers of x modulo the polynomial, bits reversed, as
 * the paper derives them. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
kafka2011_crc32_by_folding(const unsigned char *data, size_t size, uint32_t crc) {
    const __m128i by_64_bytes = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16_bytes = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i to_64_bits = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial_and_inverse = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane = _mm_xor_si128(KAFKA2011_LOAD(data), _mm_cvtsi32_si128((int)crc));

    if (size >= 64) {
        __m128i lane2 = KAFKA2011_LOAD(data + 16);
        __m128i lane3 = KAFKA2011_LOAD(data + 32);
        __m128i lane4 = KAFKA2011_LOAD(data + 48);
        data += 64;
        size -= 64;
        while (size >= 64) {
            lane = KAFKA2011_FOLD(lane, by_64_bytes, KAFKA2011_LOAD(data));
            lane2 = KAFKA2011_FOLD(lane2, by_64_bytes, KAFKA2011_LOAD(data + 16));
            lane3 = KAFKA2011_FOLD(lane3, by_64_bytes, KAFKA2011_LOAD(data + 32));
            lane4 = KAFKA2011_FOLD(lane4, by_64_bytes, KAFKA2011_LOAD(data + 48));
            data += 64;
            size -= 64;
        }
        lane = KAFKA2011_FOLD(lane, by_16_bytes, lane2);
        lane = KAFKA2011_FOLD(lane, by_16_bytes, lane3);
        lane = KAFKA2011_FOLD(lane, by_16_bytes, lane4);
    } else {
        data += 16;
        size -= 16;
    }
    while (size >= 16) {
        lane = KAFKA2011_FOLD(lane, by_16_bytes, KAFKA2011_LOAD(data));
        data += 16;
        size -= 16;
    }

    /* 128 bits to 64, then Barrett's reduction to 32. */
    lane = _mm_xor_si128(_mm_clmulepi64_si128(lane, by_16_bytes, 0x10), _mm_srli_si128(lane, 8));
    lane = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(lane, low_halves), to_64_bits, 0x00),
                         _mm_srli_si128(lane, 4));
    __m128i quotient =
        _mm_clmulepi64_si128(_mm_and_si128(lane, low_halves), polynomial_and_inverse, 0x10);
    quotient =
        _mm_clmulepi64_si128(_mm_and_si128(quotient, low_halves), polynomial_and_inverse, 0x00);
    crc = (uint32_t)_mm_extract_epi32(_mm_xor_si128(lane, quotient), 1);

    return size ? kafka2011_crc32_by_tables(data, size, crc) : crc;
}
#endif

static inline uint32_t kafka2011_crc32(const unsigned char *data, size_t size) {
#if KAFKA2011_CRC32_CAN_FOLD
    if (size >= 16 && kafka2011_crc32_folds)
        return ~kafka2011_crc32_by_folding(data, size, 0xffffffffu);
#endif
    return ~kafka2011_crc32_by_tables(data, size, 0xffffffffu);
}

/* For the tests, and for a look at what the tables alone would give. */
static inline uint32_t kafka2011_crc32_tables_only(const unsigned char *data, size_t size) {
    return ~kafka2011_crc32_by_tables(data, size, 0xffffffffu);
}

#endif
