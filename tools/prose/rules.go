package main

import (
	"fmt"
	"slices"
	"strings"
)

// Words above which a sentence is too long.
const mostWords = 35

// A rule is one thing that plain English does not do.
type rule struct {
	id, text string
	example  string // the remedy
}

// rules are explained by prose -rules.
var rules = []rule{
	{"R1", "a relative clause is the subject of a sentence, or an object in front of it",
		"`What is not TCP passes.` -> Traffic other than TCP passes."},
	{"R2", "a private word, where the field has its own (docs/tables/avoided-words.md)",
		"`the lot of a flow` -> the bucket of a flow"},
	{"R3", fmt.Sprintf("a sentence has more than %d words", mostWords),
		"One idea a sentence; a table or a list for several."},
	{"R4", "a filler, or a phrase that has gone out of use (docs/tables/avoided-words.md)",
		"`It is to be sent` -> Send it. `It counts no more` -> It no longer counts."},
	{"R5", "a docstring in which a name speaks",
		"`Joined says: ...`, `Joined tells whether ...` -> Joined reports whether ..."},
	{"R6", "subject and object have changed places",
		"`Found is what it had.` -> Found lists what it had. `So has who answers.` -> Both ends must run as root."},
	{"R7", "a private word in a name of Go or C (docs/tables/avoided-words.md)",
		"`lot_of(flow)` -> bucket_of(flow)"},
}

// A hit is a sentence that breaks a rule.
type hit struct {
	Path     string `json:"path"`
	Line     int    `json:"line"`
	Rule     string `json:"rule"`
	Sentence string `json:"sentence"`
	Remedy   string `json:"remedy"`
}

// A checker applies the rules with the words of one glossary.
type checker struct {
	first map[string][]*entry // by the first word of the pattern
	names []*entry            // R7
}

func newChecker(glossary []entry) *checker {
	c := &checker{first: map[string][]*entry{}}
	for i := range glossary {
		e := &glossary[i]
		if e.rule == "R7" {
			c.names = append(c.names, e)
			continue
		}
		c.first[e.pattern[0]] = append(c.first[e.pattern[0]], e)
	}
	return c
}

// check gives the hits of a passage, at most one of a rule and a place.
func (c *checker) check(p *passage) []hit {
	var out []hit
	for _, s := range p.sentences() {
		plain := make([]string, len(s.words))
		for i := range s.words {
			plain[i] = s.words[i].plain()
		}
		add := func(rule string, at int, remedy string) {
			out = append(out, hit{p.path, s.words[at].line, rule, s.text(), remedy})
		}
		prose := slices.Clone(plain)
		if s.first && p.name != "" && p.words[0].bare() == p.name {
			prose[0] = "" // R2 is about words: the name that a docstring begins with is code
		}
		c.phrases(prose, add)
		noMore(&s, plain, add)
		if s.title {
			continue
		}
		if at := subjectClause(s.words); at >= 0 {
			add("R1", at, "name the thing: subject, verb, object")
		} else if s.comment && pronounFirst(s.words) {
			add("R1", 0, "name the thing: subject, verb, object")
		}
		if n := length(s.words); n > mostWords {
			add("R3", 0, fmt.Sprintf("%d words: cut it", n))
		}
		if s.first && p.name != "" && len(plain) > 2 && p.words[0].bare() == p.name && docVerbs[plain[1]] {
			add("R5", 0, "reports whether, returns, lists")
		}
		inverted(&s, plain, add)
	}
	return out
}

// phrases is R2, and the fillers of R4.
func (c *checker) phrases(plain []string, add func(string, int, string)) {
	for i, w := range plain {
		for _, e := range c.first[w] {
			for _, at := range e.uses(plain) {
				if at == i {
					add(e.rule, at, fmt.Sprintf("%s -> %s", strings.Join(e.pattern, " "), e.instead))
				}
			}
		}
	}
}

// noMore is R4: "is counted no more" at the end of a clause. "and no more" means something else.
func noMore(s *sentence, plain []string, add func(string, int, string)) {
	for i := 1; i+1 < len(plain); i++ {
		if plain[i] == "no" && plain[i+1] == "more" && endsClause(s.words, i+1) && !endsClause(s.words, i-1) && !strange[plain[i-1]] {
			add("R4", i, "no more -> no longer, before the verb")
		}
	}
}

func endsClause(words []word, i int) bool {
	return i == len(words)-1 || strings.ContainsAny(words[i].text[len(words[i].text)-1:], ".,;:)?")
}

// inverted is R6.
func inverted(s *sentence, plain []string, add func(string, int, string)) {
	for i := 0; i+2 < len(plain); i++ {
		if (plain[i] == "so" || plain[i] == "nor") && finite[plain[i+1]] && people[plain[i+2]] {
			add("R6", i, "say the whole second sentence")
			return
		}
	}
	if len(plain) > 3 && isParticiple(plain[0]) && be[plain[1]] && people[plain[2]] {
		add("R6", 0, "the subject comes first")
	}
	if n := len(plain); n > 4 && plain[0] == "of" && plain[n-3] == "nothing" && be[plain[n-2]] && !strings.ContainsAny(s.text(), ":;") {
		add("R6", 0, "the subject comes first")
	}
}

func isParticiple(w string) bool {
	return irregular[w] || participles[w] || strings.HasSuffix(w, "ed")
}

// subjectClause is R1: the place of the clause, or -1.
func subjectClause(words []word) int {
	for _, at := range clauses(words) {
		if at < len(words)-1 && coordinators[words[at].plain()] {
			at++
		}
		if relativeSubject(words[at:]) {
			return at
		}
	}
	return -1
}

// pronounFirst reports whether a comment's sentence begins with a relative pronoun and is no question. Such a sentence is a
// clause without a main verb ("What the queue holds, in bytes.") or one whose verb is not in this program's lists.
func pronounFirst(words []word) bool {
	switch words[0].text {
	case "What", "Which", "Who", "Whose":
		return len(words) > 2 && !strings.HasSuffix(words[len(words)-1].text, "?")
	}
	return false
}

// length counts the words of a sentence. Signs alone are none; a list of code, as `a`, `b`, `c`, is one.
func length(words []word) int {
	n := 0
	for i := range words {
		if trim(words[i].text) == "" || i > 0 && words[i].code && words[i-1].code {
			continue
		}
		n++
	}
	return n
}
