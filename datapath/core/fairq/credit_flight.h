// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Requests that have left for their servers, and whose answers have not come yet.
//
// Servers may be late, and then answer many requests at once. The clock of a port (credit.h) counts an answer as drained when its
// time has passed, so it would release more. `flight` counts what still may come. While the buffer has no room for it,
// requests are held: credit_returns in credit.h.
//
//   released   a request leaves, with the promise that it carries
//   used       its server sends: the promise is no longer in flight
//   forgotten  after FLIGHT_SPANS spans, 31 to 34 ms: a server that takes longer is not waited for
//   prompt     share of the requests that are answered before they are forgotten, a mean over about FLIGHT_MEAN of them. The sum of
//              what is in flight counts for this share of it. So servers that always take long, and ends that never answer, hold
//              nothing after some tens of requests
//   burst      share of it that comes at once: the largest that the queue showed, of queue and flight together. The sum of what is
//              in flight counts for this share of it. An answer that comes while much is in flight takes its part of the share away. So
//              nothing is held for answers that come one after another, for example because their requests wait at another
//              switch on the way
//
// Numeric specification
//   span       now_ns >> FLIGHT_SPAN_LOG2_NS. A promise is in the sum of the span in which it was released. Its end remembers the
//              number of the span plus 1, in 32 bits, so that exactly this sum gets smaller when it sends. 0: none
//   share      2^20ths. An answer in time adds 1/FLIGHT_MEAN of what is missing; n requests that are forgotten together take
//              n/FLIGHT_MEAN of it, n at most FLIGHT_MEAN
//   much       bytes: what queue and flight may be together (credit_filled). A smaller sum counts as this one, and answers change
//              `burst` while more than half of it is in flight
#ifndef WEIR_CORE_CREDIT_FLIGHT_H
#define WEIR_CORE_CREDIT_FLIGHT_H

#include "../types.h"

#define FLIGHT_SPANS 16u // a power of 2
#define FLIGHT_SPAN_LOG2_NS 21
#define FLIGHT_WHOLE (1u << 20) // the share 1
#define FLIGHT_MEAN 64u
#define FLIGHT_WAITS 0xffffffffu // of an end: its request waits in the parking
#define FLIGHT_HELD 0xfffffffeu  // of an end: its request is held
#define FLIGHT_BYTES_MAX (1u << 26)

struct flight_span {
	weir_u32 bytes;
	weir_u32 requests;
};

struct credit_flight {
	weir_u64 span;        // the latest
	weir_u32 prompt_less; // FLIGHT_WHOLE less the share
	weir_u32 bytes;       // sum of all spans
	weir_u32 burst;       // the share of it that comes at once
	weir_u32 zero;
	struct flight_span spans[FLIGHT_SPANS]; // by the number of the span, modulo FLIGHT_SPANS
};

// Forgets a span.
WEIR_INLINE void flight_forgets(struct credit_flight *f, struct flight_span *s)
{
	weir_u32 n = s->requests < FLIGHT_MEAN ? s->requests : FLIGHT_MEAN;

	f->prompt_less += (FLIGHT_WHOLE - f->prompt_less) / FLIGHT_MEAN * n;
	f->bytes -= s->bytes < f->bytes ? s->bytes : f->bytes;
	s->bytes = 0;
	s->requests = 0;
}

// Reports whether time has moved on to another span. Another processor may have read a later time.
WEIR_INLINE int flight_is_later(const struct credit_flight *f, weir_u64 now_ns)
{
	return (long long)((now_ns >> FLIGHT_SPAN_LOG2_NS) - f->span) > 0;
}

// Event: time has moved on. Forgets what was released too long ago. The other events need it before them, if flight_is_later.
WEIR_INLINE void flight_until(struct credit_flight *f, weir_u64 now_ns)
{
	weir_u64 span = now_ns >> FLIGHT_SPAN_LOG2_NS, gone = span - f->span;

	if (!flight_is_later(f, now_ns))
		return;
	for (weir_u32 i = 1; i <= FLIGHT_SPANS; i++)
		if (i <= gone)
			flight_forgets(f, &f->spans[(f->span + i) & (FLIGHT_SPANS - 1)]);
	f->span = span;
}

// Reports whether an end remembers a request that has left.
WEIR_INLINE int flight_left(weir_u32 mark) { return mark && mark != FLIGHT_WAITS && mark != FLIGHT_HELD; }

// Event: a request leaves that promises so many bytes. Returns what its end remembers.
WEIR_INLINE weir_u32 flight_released(struct credit_flight *f, weir_u32 bytes)
{
	struct flight_span *s = &f->spans[f->span & (FLIGHT_SPANS - 1)];
	weir_u32 mark = (weir_u32)f->span + 1;

	if (bytes < FLIGHT_BYTES_MAX - f->bytes) {
		s->bytes += bytes;
		f->bytes += bytes;
	}
	s->requests++;
	return flight_left(mark) ? mark : 1;
}

// Event: an end sends. mark: what it remembers. bytes: as when its request left.
WEIR_INLINE void flight_used(struct credit_flight *f, weir_u32 mark, weir_u32 bytes, weir_u32 much)
{
	struct flight_span *s;

	if (!flight_left(mark) || (weir_u32)f->span + 1 - mark >= FLIGHT_SPANS) // forgotten
		return;
	s = &f->spans[(mark - 1) & (FLIGHT_SPANS - 1)];
	if (bytes > s->bytes)
		bytes = s->bytes;
	s->bytes -= bytes;
	if (f->bytes > much / 2 && bytes < f->bytes)
		f->burst -= (weir_u32)((weir_u64)f->burst * bytes / f->bytes);
	f->bytes -= bytes < f->bytes ? bytes : f->bytes;
	s->requests -= s->requests > 0;
	f->prompt_less -= f->prompt_less / FLIGHT_MEAN;
}

// Event: the queue is seen with so many bytes.
WEIR_INLINE void flight_sees(struct credit_flight *f, weir_u32 backlog_bytes, weir_u32 much)
{
	weir_u64 sum = (weir_u64)f->bytes + backlog_bytes;
	weir_u32 share;

	if (sum < much)
		sum = much;
	share = sum ? (weir_u32)(((weir_u64)backlog_bytes << 20) / sum) : 0;
	if (share > f->burst)
		f->burst = share;
}

// Returns how many bytes are expected at once of what is in flight.
WEIR_INLINE weir_u32 flight_expected(const struct credit_flight *f)
{
	weir_u64 prompt = (weir_u64)f->bytes * (FLIGHT_WHOLE - f->prompt_less) >> 20;

	return (weir_u32)(prompt * f->burst >> 20);
}

#endif
