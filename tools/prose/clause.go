package main

import "strings"

// clauses cuts a sentence behind colons and semicolons, and gives the places where the parts begin.
func clauses(words []word) []int {
	out := []int{0}
	for i := range words[:len(words)-1] {
		if t := words[i].text; t == "..." || !words[i].code && (strings.HasSuffix(t, ":") || strings.HasSuffix(t, ";")) {
			out = append(out, i+1)
		}
	}
	return out
}

// relativeSubject reports whether the words begin with a relative or interrogative clause that is the subject of a sentence,
// as in `what is not TCP passes`, or an object in front of it, as in `which it is, its bucket says`. A colon, a semicolon or the
// end of the sentence ends the clause.
//
// It counts finite verbs. The first belongs to the relative clause. Each dependent clause that begins later takes one more.
// A verb that is left over is the main verb.
func relativeSubject(words []word) bool {
	for i := range words {
		if t := words[i].text; !words[i].code && (strings.HasSuffix(t, ";") || strings.HasSuffix(t, ":")) {
			words = words[:i+1]
			break
		}
	}
	if len(words) < 3 || !relatives[words[0].plain()] || strings.HasSuffix(words[len(words)-1].text, "?") {
		return false
	}
	pending, parens := 1, 0 // dependent clauses that have no verb yet; open parentheses
	for i := 1; i < len(words); i++ {
		w, before := words[i].plain(), words[i-1].plain()
		comma := strings.HasSuffix(words[i-1].text, ",")
		parens += strings.Count(words[i].text, "(")
		inside := parens > 0 && !words[i].code
		if !words[i].code {
			parens = max(0, parens-strings.Count(words[i].text, ")"))
		} else {
			parens = max(0, parens-max(0, strings.Count(words[i].text, ")")))
		}
		switch {
		case inside || words[i].code:
		case comma && (w == "what" || w == "how" || w == "why" || w == "whether") || (before == "and" || before == "or") && w == "what":
			if w != "why" || !strings.HasSuffix(words[i].text, ",") {
				pending++ // a list of such clauses
			}
		case comma && pending == 0 && pronouns[w] && w != "one" && i+1 < len(words) && !coordinators[w]:
			return words[0].plain() != "how" && words[0].plain() != "why" && words[0].plain() != "whatever" && words[0].plain() != "whichever"
		case subordinates(words, i, pending):
			pending++
		case pending > 0 && (isVerb(words, i) || isPast(words, i) || isPluralVerb(words, i)):
			pending--
		case isVerb(words, i):
			if coordinated(words, i) || comma && verbsThird[w] && !finite[w] && i+1 < len(words) && strings.HasSuffix(words[i].text, ",") {
				continue
			}
			contact := pronouns[before] && !strings.HasSuffix(words[max(0, i-2)].text, ",") && !prepositions[words[max(0, i-2)].plain()]
			if contact {
				continue // "the port it leaves by": a clause that no conjunction begins
			}
			return true
		}
	}
	return false
}

// subordinates reports whether the word at i begins another dependent clause.
func subordinates(words []word, i, pending int) bool {
	w := words[i].plain()
	if !subordinators[w] || i+1 >= len(words) {
		return false
	}
	switch w {
	case "that":
		demonstrative := pending > 0 && isVerb(words, i+1) && strings.HasSuffix(words[i+1].text, ",")
		return !demonstrative && !strings.HasSuffix(words[i].text, ",") && !prepositions[words[i-1].plain()]
	case "so":
		return false
	case "as", "than", "before", "after", "since", "until", "while", "when":
		// A conjunction if a subject and a verb follow within three words.
		for j := i + 1; j < len(words) && j < i+6; j++ {
			if finite[words[j].plain()] || j > i+1 && isVerb(words, j) || j > i+1 && isPluralVerb(words, j) || j > i+1 && isPast(words, j) {
				return true
			}
			if strings.ContainsAny(words[j].text[len(words[j].text)-1:], ",;.:") {
				return false
			}
		}
		return false
	}
	return true
}

// coordinated reports whether the verb at i goes on with the one before it: "what comes and goes".
func coordinated(words []word, i int) bool {
	for i--; i > 0; i-- {
		w := words[i].plain()
		if coordinators[w] {
			return true
		}
		if !adverbs[w] {
			return false
		}
	}
	return false
}

// isVerb reports whether the word at i is a finite verb, as far as it can be known without a grammar.
func isVerb(words []word, i int) bool {
	if i >= len(words) || i == 0 || words[i].code {
		return false
	}
	w, before := words[i].plain(), words[i-1].plain()
	switch {
	case w == "do" || w == "have" || w == "had" || w == "has":
		return !infinitive[before] && !auxiliaries[before]
	case finite[w]:
		return before != "or" || w != "not"
	case !verbsThird[w]:
		return false
	case nounsToo[w] && (determiners[before] || strings.HasSuffix(words[i-1].text, ",")):
		return false
	}
	return !articles[before]
}

// isPast reports whether the word at i is a past tense, in a place where a verb is missing.
func isPast(words []word, i int) bool {
	w, before := words[i].plain(), words[i-1].plain()
	if auxiliaries[before] || adverbs[before] || determiners[before] || infinitive[before] {
		return false
	}
	if i == 1 && i+1 < len(words) {
		if next := words[2].plain(); coordinators[next] || strings.HasSuffix(next, "s") && !auxiliaries[next] && !verbsThird[next] {
			return false // "what observed flows get"
		}
	}
	return irregular[w] || len(w) > 4 && strings.HasSuffix(w, "ed")
}

// isPluralVerb reports whether the word at i is the verb of a plural: "switches send".
func isPluralVerb(words []word, i int) bool {
	w, before := words[i].plain(), words[i-1].plain()
	many := plural[before] || !auxiliaries[before] && !determiners[before] && before != "always" && len(before) > 3 && strings.HasSuffix(before, "s") && !strings.HasSuffix(before, "ss") && !strings.HasSuffix(words[i-1].text, ",")
	return many && (verbsThird[w+"s"] || verbsThird[w+"es"]) && !determiners[w]
}
