package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed words.txt
var wordLists string

// The lists of words.txt, which says what each is for.
var (
	relatives     = wordList("relatives")
	subordinators = wordList("subordinators")
	pronouns      = wordList("pronouns")
	articles      = wordList("articles")
	determiners   = wordList("determiners")
	finite        = wordList("finite")
	auxiliaries   = wordList("auxiliaries")
	infinitive    = wordList("infinitive")
	coordinators  = wordList("coordinators")
	adverbs       = wordList("adverbs")
	prepositions  = wordList("prepositions")
	irregular     = wordList("irregular")
	plural        = wordList("plural")
	verbsThird    = wordList("verbsThird")
	nounsToo      = wordList("nounsToo")
	be            = wordList("be")
	docVerbs      = wordList("docVerbs")
	strange       = wordList("strange")
	people        = wordList("people")
	participles   = wordList("participles")
)

// wordList gives the words of words.txt under a name.
func wordList(name string) map[string]bool {
	out := map[string]bool{}
	in := false
	for line := range strings.Lines(wordLists) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "  "):
			for _, w := range strings.Fields(line) {
				if in {
					out[w] = true
				}
			}
		default:
			in = strings.TrimSpace(line) == name+":"
		}
	}
	if len(out) == 0 {
		panic(fmt.Sprintf("words.txt has no list %s", name))
	}
	return out
}
