package main

import (
	"strings"
	"unicode"
)

// A passage is a piece of prose from one place of a file: a comment, a string, a paragraph, a cell of a table. A sentence
// never runs from one passage into the next.
type passage struct {
	path    string
	comment bool // of code, not a page's text or a string
	title   bool // a heading, or the label of a part: need not be a sentence
	// name is what a docstring documents; "" elsewhere.
	name  string
	words []word
}

// A word is what stands between two spaces, or a whole code span.
type word struct {
	text string
	line int
	code bool // never prose: between backticks, or an identifier, a path, a number
}

// sentence is the words of one sentence of a passage.
type sentence struct {
	*passage
	words []word
	first bool // of its passage
}

// text gives the sentence as it stands in the file, in one line.
func (s *sentence) text() string {
	parts := make([]string, len(s.words))
	for i, w := range s.words {
		parts[i] = w.text
	}
	return strings.Join(parts, " ")
}

// addLine appends the words of one line of text.
func (p *passage) addLine(text string, line int) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		end := strings.IndexFunc(text, unicode.IsSpace)
		if at := strings.IndexByte(text, '`'); at >= 0 && (end < 0 || at < end) {
			// A code span is one word, with the punctuation that touches it.
			if n := strings.IndexByte(text[at+1:], '`'); n >= 0 {
				end = at + n + 2
				if rest := strings.IndexFunc(text[end:], unicode.IsSpace); rest >= 0 {
					end += rest
				} else {
					end = len(text)
				}
				p.words = append(p.words, word{text: text[:end], line: line, code: true})
				text = text[end:]
				continue
			}
		}
		if end < 0 {
			end = len(text)
		}
		p.words = append(p.words, word{text: text[:end], line: line, code: isCode(text[:end])})
		text = text[end:]
	}
}

// isCode reports whether a word is an identifier, a path, a number with its unit, one word in quotation marks, or a link to a
// declaration.
func isCode(text string) bool {
	if len(text) > 2 && text[0] == '"' && strings.HasSuffix(strings.TrimRight(text, ".,;:)"), `"`) {
		return true
	}
	if strings.HasPrefix(text, "[") && strings.HasSuffix(strings.TrimRight(text, ".,;:)"), "]") {
		return true
	}
	bare := trim(text)
	if strings.ContainsAny(bare, "_/=<>{}[]%$@0123456789\\") {
		return true
	}
	if strings.ContainsRune(bare, '.') && !strings.HasSuffix(bare, ".") {
		return true // a selector, a file
	}
	for i, r := range bare {
		if i > 0 && unicode.IsUpper(r) && strings.ToUpper(bare) != bare {
			return true // mixedCase
		}
	}
	return false
}

// trim takes punctuation off both ends of a word.
func trim(text string) string {
	return strings.Trim(text, ".,;:!?()[]\"'*`–—")
}

// plain gives the word without punctuation, in lower case; "" for code.
func (w *word) plain() string {
	if w.code {
		return ""
	}
	return strings.ToLower(strings.TrimSuffix(trim(w.text), "'s"))
}

// bare gives the word without punctuation.
func (w *word) bare() string { return trim(w.text) }

// abbreviations end with a full stop that ends no sentence.
var abbreviations = map[string]bool{
	"e.g": true, "i.e": true, "cf": true, "vs": true, "alg": true, "fig": true, "sec": true, "no": true, "approx": true,
	"eq": true, "etc": false, "resp": true, "st": true, "al": true, "ch": true, "figs": true, "eqs": true, "pp": true, "p": true,
}

// endsSentence reports whether the word is the last of a sentence.
func (w *word) endsSentence() bool {
	text := strings.TrimRight(w.text, `"')*`+"`")
	if text == "" || strings.HasSuffix(text, "..") {
		return false
	}
	switch text[len(text)-1] {
	case '?', '!':
		return len(text) > 1
	case '.':
		return len(text) > 1 && !abbreviations[strings.ToLower(strings.TrimLeft(strings.TrimSuffix(text, "."), `"'(`))]
	}
	return false
}

// sentences cuts the passage after full stops, question marks and exclamation marks.
func (p *passage) sentences() []sentence {
	var out []sentence
	from := 0
	for i := range p.words {
		if i == len(p.words)-1 || p.words[i].endsSentence() {
			out = append(out, sentence{p, p.words[from : i+1], from == 0})
			from = i + 1
		}
	}
	return out
}
