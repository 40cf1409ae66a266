//go:build cgo

package fairq_test

import (
	"context"
	"testing"
	"time"

	"weir/datapath/fairq"
	"weir/datapath/fairq/lawtrace"
	"weir/datapath/testnet"
)

// creditMutants are faults in promises and credits.
var creditMutants = []lawMutant{
	{"frames have no headers", "credit_state.h", "* (CREDIT_HEADER_BYTES + config->line_bytes);", "* config->line_bytes;", "credits", "credit_acknowledges("},
	{"short answers make promises cheaper twice as fast", "credit.h", "factor - factor / 32 + share / 32", "factor - factor / 16 + share / 16", "credits", ": the factor"},
	{"a promise that was used is still owed", "credit.h", "credit_owes_less(state, owes);", ";", "credits", ": what is owed"},
	{"corrections never show in the queue", "credit.h", "change - credit_part(state->corrected_ns, cost, cycle)", "change", "credits", ": corrections"},
	{"a packet waits until nothing is ahead", "credit.h", "want = state->clock_ns - room;", "want = state->clock_ns;", "credits", "credit_acknowledges("},
	{"a packet that the parking refused keeps its place", "credit.h", "state->queue_ns -= credit_ns(config, answer->length_bytes);", ";", "credits", ": the parking queue"},
	{"a live promise is not owed", "credit.h", "return CREDIT_LIVE | CREDIT_OWED;", "return CREDIT_LIVE;", "credits", ""},
	{"the law does not restart after the port paced", "credit.h", "if (port->pacing && !paces)", "if (0)", "credits", "port_paces("},
	{"the end of a message releases a window", "credit_ack.h", "!ack->ends && !credit_is_last(ack)", "!ack->ends", "credits", "credit_acknowledges("},
	{"an end at rest gets one segment", "credit_ack.h", "two = 2 * ack->floor_bytes", "two = 1 * ack->floor_bytes", "credits", "credit_rest("},
	{"a request behind others counts its promise as of now", "credit_ack.h", "now_ns)) * ack->behind;", "now_ns)) * 0;", "credits", "credit_acknowledges("},
	{"pacing does not limit windows", "credit_ack.h", "promise ? promise : port->pacing", "promise", "credits", "what promises and pacing grant"},
	{"a request must acknowledge more than everything", "credit_ack.h", "return ack - others <= 1;", "return ack - others == 1;", "credits", "credit_opens"},
	{"what is in flight is forgotten at once", "credit_flight.h", "f->span = span;", "f->span = span, f->bytes = 0;", "credits", "flight_until("},
	{"an answer stays in flight", "credit.h", "flight_used(&state->flight, released, owes, credit_filled(config));", ";", "credits", "credit_used("},
	{"no queue shows a burst", "credit_ack.h", "flight_sees(&state->flight, ack->backlog_bytes, credit_filled(config));", ";", "credits", "credit_acknowledges("},
	{"held requests do not belong to the queue", "credit_hold.h", "queue += credit_share(state->held_bytes, credit_factor(state));", ";", "credits", "credit_acknowledges("},
	{"requests are never held", "credit_hold.h", "if ((full || (!held &&", "if (0 && (full || (!held &&", "credits", "credit_returns("},
	{"a byte that is acknowledged next counts as acknowledged", "credit_turn.h", "return una - end < CREDIT_STREAM;", "return una - end + 1 < CREDIT_STREAM;", "credits", "credit_was_acknowledged"},
	{"a full segment counts as short", "credit_turn.h", "payload_bytes < longest_bytes", "payload_bytes <= longest_bytes", "credits", "credit_turn("},
}

// tracedCredits records bursts of answers on a path with credits: on open connections and on new ones, so that the port
// begins and ends to pace. The parking is removed before the last bursts, so that it refuses packets.
func tracedCredits(t *testing.T, credit fairq.Credit, rounds int) *lawtrace.Trace {
	t.Helper()
	recorder, err := lawtrace.New()
	if err != nil {
		t.Fatal(err)
	}
	law := creditLaw()
	law.Active = 100 * time.Millisecond
	b := newCreditBedOf(t, 40, law, fairq.Config{Credit: credit, Trace: recorder})
	all := b.conns
	l := b.Listen(t, testnet.ReceiverIPv4)
	for round := range rounds {
		if round == rounds-2 && credit == fairq.CreditPaces {
			b.deleteParking(t)
		}
		b.conns = all
		if credit == fairq.CreditPaces && round == 1 {
			b.askLate(t)
			b.handshakes(t, 40)
		} else {
			b.ask(t)
		}
		b.conns = []*testnet.Pair{b.Dial(t, l, testnet.WindowScale(4))} // its windows can express one segment and two
		testnet.Until(t, "only one connection counts as a flow", func() bool {
			b.ask(t)
			_, in := statsOfBoth(t, b.f)
			return in.Flows <= 2
		})
		b.conns[0].Close()
	}
	release, cancel := context.WithTimeout(context.Background(), testnet.Patience)
	defer cancel()
	if err := b.f.Release(release); err != nil {
		t.Fatal(err)
	}
	b.conns = all
	b.ask(t)
	// The last packets may still be on their way, so the counts are read when neither they nor the trace can change any more. On a late
	// machine the port of the requests paces, too, so the counts are those of both ports, as the trace's are.
	read, err := b.f.CreditsAfter()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.f.Close(); err != nil {
		t.Fatal(err)
	}
	trace, err := recorder.Stop()
	if err != nil {
		t.Fatal(err)
	}
	promises, parked, err := read()
	if err != nil {
		t.Fatal(err)
	}
	r, err := trace.Replay()
	if err != nil {
		t.Fatal(err)
	}
	if n := callsOf(r, "  of them: packets that opened a flight"); n < promises {
		t.Errorf("the trace has %d packets that opened a flight, the program counted %d promises", n, promises)
	}
	if n := callsOf(r, "  of them: packets that waited in the parking") - callsOf(r, "credit_refused"); n != parked {
		t.Errorf("the trace has %d packets that waited, the program counted %d", n, parked)
	}
	return trace
}

// Under real TCP the native core agrees with the kernel about promises and credits, to the bit. Each decision of the core
// occurs.
func TestDifferential_Credits(t *testing.T) {
	for _, c := range []struct {
		name   string
		credit fairq.Credit
		never  []string
	}{
		{"credits", fairq.CreditPaces, nil},
		{"promises alone", fairq.CreditPromises, []string{
			"  port_paces: ports that began or ended to pace", "  of them: packets that waited in the parking", "credit_refused", "  of them: an end at rest got a promise", "  of them: held requests",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := agreed(t, tracedCredits(t, c.credit, 6))
			if n := r.Kinds[lawtrace.KindCredit]; n < 5000 {
				t.Errorf("%d answers about promises and credits", n)
			}
			never := map[string]bool{}
			for _, what := range c.never {
				never[what] = true
			}
			for _, what := range lawtrace.CreditCalls() {
				if n := callsOf(r, what); (n == 0) != never[what] {
					t.Errorf("%d calls: %s", n, what)
				}
			}
		})
	}
}
