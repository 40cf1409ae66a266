package oftest

import (
	"fmt"

	"pgregory.net/rapid"

	of "weir/openflow"
)

// Corpus returns n messages of each type, and as many multipart messages as that of each kind, as bytes. It is always the
// same: for fuzzing to start from, and for other implementations to read.
func Corpus(n int) [][]byte { return corpus(newMaker(anyField()), n) }

// KnownCorpus is likewise, without the fields that this package keeps as they come: others know others.
func KnownCorpus(n int) [][]byte { return corpus(newMaker(rapid.Custom(knownField)), n) }

func corpus(m *maker, n int) [][]byte {
	var all [][]byte
	for t := of.TypeHello; of.New(t) != nil; t++ {
		g, count := m.message(t), n
		if t == of.TypeMultipartRequest || t == of.TypeMultipartReply {
			count = 15 * n // kinds
		}
		for i := range count {
			b, err := of.Append(nil, uint32(len(all)), g.Example(i))
			if err != nil {
				panic(fmt.Sprintf("message %d of %s: %v", i, t, err)) // a generator that is wrong
			}
			all = append(all, b)
		}
	}
	return all
}
