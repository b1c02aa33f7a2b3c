/* Sec-WebSocket-Accept (RFC 6455 section 4.2.2): base64 of the SHA-1 of the key and a fixed GUID. */
#ifndef ACCEPT_H
#define ACCEPT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ACCEPT_SIZE = 29 }; /* 28 characters and the end */

static uint32_t rotl(uint32_t x, int n)
{
	return x << n | x >> (32 - n);
}

static void sha1_block(uint32_t h[5], const uint8_t *p)
{
	uint32_t w[80];
	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | p[4 * i + 1] << 16 | p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 80; i++)
		w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);

	uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
	for (int i = 0; i < 80; i++) {
		uint32_t f, k;
		if (i < 20)
			f = (b & c) | (~b & d), k = 0x5a827999;
		else if (i < 40)
			f = b ^ c ^ d, k = 0x6ed9eba1;
		else if (i < 60)
			f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
		else
			f = b ^ c ^ d, k = 0xca62c1d6;
		uint32_t t = rotl(a, 5) + f + e + k + w[i];
		e = d, d = c, c = rotl(b, 30), b = a, a = t;
	}
	h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

/* sha1 hashes up to 119 bytes: a key and the RFC's GUID are 60. */
static void sha1(const char *text, size_t n, uint8_t digest[20])
{
	uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	uint8_t blocks[128] = {0};
	size_t size = n < 56 ? 64 : 128;
	memcpy(blocks, text, n);
	blocks[n] = 0x80;
	blocks[size - 2] = (uint8_t)(n * 8 >> 8);
	blocks[size - 1] = (uint8_t)(n * 8);
	for (size_t i = 0; i < size; i += 64)
		sha1_block(h, blocks + i);
	for (int i = 0; i < 20; i++)
		digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

static void base64(const uint8_t *p, size_t n, char *text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	for (; n >= 3; p += 3, n -= 3) {
		*text++ = digits[p[0] >> 2];
		*text++ = digits[(p[0] & 3) << 4 | p[1] >> 4];
		*text++ = digits[(p[1] & 15) << 2 | p[2] >> 6];
		*text++ = digits[p[2] & 63];
	}
	if (n == 2) {
		*text++ = digits[p[0] >> 2];
		*text++ = digits[(p[0] & 3) << 4 | p[1] >> 4];
		*text++ = digits[(p[1] & 15) << 2];
		*text++ = '=';
	} /* 20 bytes leave two over; no other length is asked for */
	*text = 0;
}

/* accept_value answers a key of at most 82 characters. */
static void accept_value(const char *key, char accept[ACCEPT_SIZE])
{
	char text[120];
	uint8_t digest[20];
	int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
	sha1(text, (size_t)n, digest);
	base64(digest, sizeof digest, accept);
}

#endif
