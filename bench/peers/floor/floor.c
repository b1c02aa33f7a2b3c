/*
 * floor: the least a gateway of our shape can do.
 *
 * A frame-aware fan-out relay: WebSocket in, WebSocket out, one epoll loop, level-triggered. It cuts and unmasks client frames,
 * routes each message by digits at a fixed place and gathers what it writes: one send per connection and epoll round. It reads
 * no JSON, keeps no request, has no timeouts. What a real gateway costs beyond this is the price of its features.
 *
 * A connection announces itself with its first message: "E03" is edge 3, "B05" is backend 5 (the newest announcement wins).
 * After that a message carries its route at a fixed offset, as the first member of its JSON:
 *
 *     {"r":"03-05",...        bytes 6..7 the edge, 9..10 the backend
 *
 * From a backend it goes to that edge, from an edge to that backend, its payload unchanged. What has no live destination is
 * dropped. Fragmented messages are not carried (close 1003); RFC 6455 violations that matter to framing close with 1002.
 *
 * Bounds: CONNS_MAX connections, HEAD_MAX bytes of a request head, MESSAGE_MAX bytes of a message, OUT_MAX bytes waiting for one
 * reader (beyond it the reader is closed), READ_SIZE bytes read from one connection per round.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "accept.h"

enum {
	PARTIES = 100, /* two digits */
	CONNS_MAX = 16384,
	EVENTS_MAX = 512,
	ACCEPTS_PER_ROUND = 64,
	HEAD_MAX = 8 << 10,
	FRAME_HEAD_MAX = 14,
	MESSAGE_MAX = (1 << 20) + (4 << 10),
	READ_SIZE = 256 << 10,
	KEEP_SLACK = 64 << 10, /* read beyond the end of a begun frame */
	OUT_MAX = 64 << 20,
	ROUTE_END = 11, /* {"r":"03-05 */
};

enum { OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

struct conn {
	int fd; /* -1: closed, freed at the end of the round */
	char open; /* the handshake is done */
	char role; /* 0 not announced, 'E' or 'B' */
	char dirty; /* in the list of those to write to this round */
	char blocked; /* the socket is full: EPOLLOUT is armed */
	int number;
	uint8_t *in; /* the begun frame or head, empty most of the time */
	size_t in_len, in_cap;
	uint8_t *out;
	size_t out_off, out_len, out_cap;
	struct conn *next_dead;
};

static int epoll_fd, listen_fd, conn_count, conns_max;
static struct conn *edges[PARTIES], *backends[PARTIES];
static struct conn *dirty[CONNS_MAX + ACCEPTS_PER_ROUND]; /* those closed this round count too */
static int dirty_count;
static struct conn *dead;
static uint8_t read_buffer[READ_SIZE];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *must(void *p)
{
	if (p == NULL)
		die("floor: memory");
	return p;
}

/* ---- connections ---- */

static void conn_close(struct conn *c)
{
	if (c->fd < 0)
		return;
	close(c->fd);
	c->fd = -1;
	conn_count--;
	if (c->role == 'E' && edges[c->number] == c)
		edges[c->number] = NULL;
	if (c->role == 'B' && backends[c->number] == c)
		backends[c->number] = NULL;
	c->next_dead = dead;
	dead = c;
}

/* free_dead waits for the end of the round: events and the dirty list may still point to a closed connection. */
static void free_dead(void)
{
	while (dead != NULL) {
		struct conn *c = dead;
		dead = c->next_dead;
		free(c->in);
		free(c->out);
		free(c);
	}
}

static void arm(struct conn *c, int blocked)
{
	struct epoll_event ev = {.events = EPOLLIN | (blocked ? EPOLLOUT : 0), .data.ptr = c};
	c->blocked = (char)blocked;
	if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &ev) < 0)
		conn_close(c);
}

static void conn_flush(struct conn *c)
{
	ssize_t n = send(c->fd, c->out + c->out_off, c->out_len - c->out_off, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		conn_close(c);
		return;
	}
	if (n > 0)
		c->out_off += (size_t)n;
	if (c->out_off == c->out_len) {
		c->out_off = c->out_len = 0;
		if (c->blocked)
			arm(c, 0);
	} else if (!c->blocked) {
		arm(c, 1);
	}
}

/* reserve_slow makes room for n bytes by moving what waits to the front, else by growing. NULL: over OUT_MAX, closed. */
static uint8_t *reserve_slow(struct conn *c, size_t n)
{
	size_t waiting = c->out_len - c->out_off;
	if (waiting + n > OUT_MAX) {
		conn_close(c);
		return NULL;
	}
	size_t cap = c->out_cap ? c->out_cap : 16 << 10;
	while (cap < waiting + n || cap < 2 * waiting)
		cap *= 2;
	if (cap > c->out_cap) {
		uint8_t *grown = must(malloc(cap));
		if (waiting > 0)
			memcpy(grown, c->out + c->out_off, waiting);
		free(c->out);
		c->out = grown;
		c->out_cap = cap;
	} else {
		memmove(c->out, c->out + c->out_off, waiting);
	}
	c->out_off = 0;
	c->out_len = waiting;
	return c->out + waiting;
}

/* reserve returns room for n more bytes at the end of c's output and sees to it that they leave this round. */
static uint8_t *reserve(struct conn *c, size_t n)
{
	if (!c->dirty) {
		c->dirty = 1;
		dirty[dirty_count++] = c;
	}
	if (c->out_len + n <= c->out_cap)
		return c->out + c->out_len;
	return reserve_slow(c, n);
}

static void append_unmasked(uint8_t *to, const uint8_t *from, size_t n, const uint8_t mask[4])
{
	uint64_t key, a, b, c, d;
	memcpy(&key, mask, 4);
	memcpy((uint8_t *)&key + 4, mask, 4);
	for (; n >= 32; n -= 32, from += 32, to += 32) {
		memcpy(&a, from, 8), memcpy(&b, from + 8, 8), memcpy(&c, from + 16, 8), memcpy(&d, from + 24, 8);
		a ^= key, b ^= key, c ^= key, d ^= key;
		memcpy(to, &a, 8), memcpy(to + 8, &b, 8), memcpy(to + 16, &c, 8), memcpy(to + 24, &d, 8);
	}
	for (; n >= 8; n -= 8, from += 8, to += 8) {
		memcpy(&a, from, 8);
		a ^= key;
		memcpy(to, &a, 8);
	}
	for (size_t i = 0; i < n; i++)
		to[i] = from[i] ^ mask[i & 3];
}

/* append_frame puts one unmasked server frame (RFC 6455 section 5.2) with c's payload into its outbox. */
static void append_frame(struct conn *c, int opcode, const uint8_t *payload, size_t n, const uint8_t mask[4])
{
	uint8_t *p = reserve(c, FRAME_HEAD_MAX + n);
	if (p == NULL)
		return;
	*p++ = (uint8_t)(0x80 | opcode);
	if (n < 126) {
		*p++ = (uint8_t)n;
	} else if (n < 65536) {
		*p++ = 126;
		*p++ = (uint8_t)(n >> 8);
		*p++ = (uint8_t)n;
	} else {
		*p++ = 127;
		for (int shift = 56; shift >= 0; shift -= 8)
			*p++ = (uint8_t)((uint64_t)n >> shift);
	}
	append_unmasked(p, payload, n, mask);
	c->out_len = (size_t)(p + n - c->out);
}

static void fail(struct conn *c, int code)
{
	static const uint8_t clear[4];
	uint8_t body[2] = {(uint8_t)(code >> 8), (uint8_t)code};
	append_frame(c, OP_CLOSE, body, sizeof body, clear);
	if (c->fd >= 0 && !c->blocked)
		conn_flush(c);
	conn_close(c);
}

/* ---- messages ---- */

/* digits2 reads two masked digits at offset i, -1 when they are none. */
static int digits2(const uint8_t *p, size_t i, const uint8_t mask[4])
{
	unsigned tens = (unsigned)(p[i] ^ mask[i & 3]) - '0';
	unsigned ones = (unsigned)(p[i + 1] ^ mask[(i + 1) & 3]) - '0';
	return tens > 9 || ones > 9 ? -1 : (int)(10 * tens + ones);
}

static void announce(struct conn *c, const uint8_t *p, size_t n, const uint8_t mask[4])
{
	char role = n == 3 ? (char)(p[0] ^ mask[0]) : 0;
	int number = n == 3 ? digits2(p, 1, mask) : -1;
	if ((role != 'E' && role != 'B') || number < 0) {
		fail(c, 1003);
		return;
	}
	struct conn **place = role == 'E' ? &edges[number] : &backends[number];
	if (*place != NULL)
		conn_close(*place);
	*place = c;
	c->role = role;
	c->number = number;
}

static void on_message(struct conn *c, int opcode, const uint8_t *p, size_t n, const uint8_t mask[4])
{
	if (c->role == 0) {
		announce(c, p, n, mask);
		return;
	}
	if (n < ROUTE_END) {
		fail(c, 1003);
		return;
	}
	int number = digits2(p, c->role == 'B' ? 6 : 9, mask);
	if (number < 0) {
		fail(c, 1003);
		return;
	}
	struct conn *to = c->role == 'B' ? edges[number] : backends[number];
	if (to != NULL)
		append_frame(to, opcode, p, n, mask);
}

static void on_control(struct conn *c, int opcode, const uint8_t *p, size_t n, const uint8_t mask[4])
{
	if (opcode == OP_PONG)
		return;
	append_frame(c, opcode == OP_PING ? OP_PONG : OP_CLOSE, p, n, mask);
	if (opcode == OP_CLOSE && c->fd >= 0) {
		if (!c->blocked)
			conn_flush(c);
		conn_close(c);
	}
}

/*
 * next_frame handles the frame at p. It returns the bytes used; 0 when the frame is not complete, with *need set to the
 * bytes known to be wanted in all. The connection may be closed on return.
 */
static size_t next_frame(struct conn *c, const uint8_t *p, size_t n, size_t *need)
{
	if (n < 2) {
		*need = 6;
		return 0;
	}
	int opcode = p[0] & 15;
	size_t head = 2, size = p[1] & 127;
	if (size == 126)
		head = 4;
	else if (size == 127)
		head = 10;
	if (n < head + 4) {
		*need = head + 4;
		return 0;
	}
	if (head == 4) {
		size = (size_t)p[2] << 8 | p[3];
	} else if (head == 10) {
		uint64_t wide;
		memcpy(&wide, p + 2, 8);
		size = __builtin_bswap64(wide);
	}
	int control = opcode & 8, known = opcode == OP_TEXT || opcode == OP_BINARY || (opcode >= OP_CLOSE && opcode <= OP_PONG);
	if ((p[0] & 0x70) != 0 || (p[1] & 0x80) == 0 || (control && (size > 125 || (p[0] & 0x80) == 0))) {
		fail(c, 1002);
		return 0;
	}
	if (!known || (p[0] & 0x80) == 0) {
		fail(c, opcode == 0 || known ? 1003 : 1002);
		return 0;
	}
	if (size > MESSAGE_MAX) {
		fail(c, 1009);
		return 0;
	}
	if (n < head + 4 + size) {
		*need = head + 4 + size;
		return 0;
	}
	const uint8_t *mask = p + head, *payload = p + head + 4;
	if (control)
		on_control(c, opcode, payload, size, mask);
	else
		on_message(c, opcode, payload, size, mask);
	return head + 4 + size;
}

/* ---- handshake ---- */

/* header copies the value of a header into value, "" when it is absent or too long. */
static void header(const char *head, const char *name, char *value, size_t size)
{
	size_t name_len = strlen(name);
	value[0] = 0;
	for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
		const char *at = line + 2;
		if (strncasecmp(at, name, name_len) != 0 || at[name_len] != ':')
			continue;
		at += name_len + 1;
		at += strspn(at, " \t");
		size_t n = strcspn(at, "\r\n");
		while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
			n--;
		if (n < size) {
			memcpy(value, at, n);
			value[n] = 0;
		}
		return;
	}
}

static void answer(struct conn *c, const char *text)
{
	size_t n = strlen(text);
	uint8_t *p = reserve(c, n);
	if (p == NULL)
		return;
	memcpy(p, text, n);
	c->out_len += n;
}

/* handshake reads a request head (RFC 6455 section 4.2). It returns the bytes used, 0 when the head is not complete. */
static size_t handshake(struct conn *c, const uint8_t *p, size_t n, size_t *need)
{
	const uint8_t *end = memmem(p, n, "\r\n\r\n", 4);
	if (end == NULL) {
		if (n >= HEAD_MAX)
			conn_close(c);
		*need = HEAD_MAX;
		return 0;
	}
	size_t used = (size_t)(end - p) + 4;
	char head[HEAD_MAX + 1], upgrade[32], version[8], key[64], text[256], accept[ACCEPT_SIZE];
	if (used > HEAD_MAX) {
		conn_close(c);
		return 0;
	}
	memcpy(head, p, used);
	head[used] = 0;
	header(head, "Upgrade", upgrade, sizeof upgrade);
	header(head, "Sec-WebSocket-Version", version, sizeof version);
	header(head, "Sec-WebSocket-Key", key, sizeof key);
	if (strncmp(head, "GET ", 4) != 0 || strcasecmp(upgrade, "websocket") != 0 || strcmp(version, "13") != 0 || strlen(key) != 24) {
		answer(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
		if (c->fd >= 0)
			conn_flush(c);
		conn_close(c);
		return 0;
	}
	accept_value(key, accept);
	snprintf(text, sizeof text,
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", accept);
	answer(c, text);
	c->open = 1;
	return used;
}

/* ---- the loop ---- */

/* consume handles every complete head or frame in p and returns the bytes used. */
static size_t consume(struct conn *c, const uint8_t *p, size_t n, size_t *need)
{
	size_t used = 0;
	*need = 0;
	while (c->fd >= 0 && used < n) {
		size_t step = c->open ? next_frame(c, p + used, n - used, need) : handshake(c, p + used, n - used, need);
		if (step == 0)
			break;
		used += step;
	}
	return used;
}

/* keep moves what is left of a read into the connection's own buffer, with room for the whole of what was begun. */
static void keep(struct conn *c, const uint8_t *p, size_t n, size_t need)
{
	size_t cap = (need > n ? need : n) + KEEP_SLACK;
	if (cap - KEEP_SLACK / 2 > c->in_cap) {
		uint8_t *grown = must(malloc(cap));
		memcpy(grown, p, n);
		free(c->in);
		c->in = grown;
		c->in_cap = cap;
	} else {
		memmove(c->in, p, n);
	}
	c->in_len = n;
}

static void on_readable(struct conn *c)
{
	uint8_t *buffer = read_buffer;
	size_t have = 0, room = READ_SIZE, need;
	if (c->in_len > 0) { /* go on with what was begun, in place; there is room: consume() asked for it */
		buffer = c->in;
		have = c->in_len;
		room = c->in_cap - have;
	}
	ssize_t n = recv(c->fd, buffer + have, room, 0);
	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			conn_close(c);
		return;
	}
	have += (size_t)n;
	size_t used = consume(c, buffer, have, &need);
	if (c->fd < 0)
		return;
	if (used == have)
		c->in_len = 0;
	else
		keep(c, buffer + used, have - used, need);
}

static void on_connect(void)
{
	for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
		int one = 1, fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				die("floor: accept");
			return;
		}
		if (conn_count >= conns_max) {
			close(fd);
			continue;
		}
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		struct conn *c = must(calloc(1, sizeof *c));
		struct epoll_event ev = {.events = EPOLLIN, .data.ptr = c};
		c->fd = fd;
		conn_count++;
		if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
			conn_close(c);
	}
}

static void round_once(void)
{
	struct epoll_event events[EVENTS_MAX];
	int n = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
	if (n < 0 && errno != EINTR)
		die("floor: epoll_wait");
	for (int i = 0; i < n; i++) {
		struct conn *c = events[i].data.ptr;
		if (c == NULL) {
			on_connect();
			continue;
		}
		if (c->fd >= 0 && events[i].events & EPOLLOUT)
			conn_flush(c);
		if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			on_readable(c);
	}
	for (int i = 0; i < dirty_count; i++) {
		struct conn *c = dirty[i];
		c->dirty = 0;
		if (c->fd >= 0 && !c->blocked && c->out_len > c->out_off)
			conn_flush(c);
	}
	dirty_count = 0;
	free_dead();
}

static int listen_on(int port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;
	int one = 1;
	listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listen_fd < 0)
		die("floor: socket");
	setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listen_fd, (struct sockaddr *)&at, size) < 0 || listen(listen_fd, 1024) < 0)
		die("floor: listen");
	if (getsockname(listen_fd, (struct sockaddr *)&at, &size) < 0)
		die("floor: getsockname");
	return ntohs(at.sin_port);
}

/* raise_files asks for as many descriptors as CONNS_MAX needs and returns how many connections it got them for. */
static int raise_files(void)
{
	enum { OTHERS = 64 };
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		die("floor: getrlimit");
	if (files.rlim_cur < CONNS_MAX + OTHERS) {
		files.rlim_cur = CONNS_MAX + OTHERS < files.rlim_max ? CONNS_MAX + OTHERS : files.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &files) < 0)
			die("floor: setrlimit");
	}
	return files.rlim_cur < CONNS_MAX + OTHERS ? (int)files.rlim_cur - OTHERS : CONNS_MAX;
}

int main(int argc, char **argv)
{
	char *end = NULL;
	long port = argc == 2 ? strtol(argv[1], &end, 10) : -1;
	if (port < 0 || port > 65535 || *end != 0) {
		fprintf(stderr, "usage: floor PORT (0: any)\n");
		return 2;
	}
	conns_max = raise_files();
	port = listen_on((int)port);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &ev) < 0)
		die("floor: epoll");
	printf("listening on 127.0.0.1:%ld\n", port);
	fflush(stdout);
	for (;;)
		round_once();
}
