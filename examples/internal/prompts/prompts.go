package prompts

import (
	"slices"
	"strings"
)

// NumRequired is the number of skills that a posting requires, and NumCandidates
// the number of candidates of a family.
const (
	NumRequired   = 5
	NumCandidates = 4
)

// candidateSalt separates a family's candidates from its posting ("judge-mo").
const candidateSalt = 0x6A756467652D6D6F

// Summary is one candidate's text, which ends in "Verdict:", and the number of
// the posting's required skills that it names, 0 to 5.
type Summary struct {
	Text  string
	Count int
}

// Family is one posting and the candidates that are judged by it.
type Family struct {
	Posting    string
	Required   []string // [NumRequired], in the posting's order
	Candidates [NumCandidates]Summary
}

// Prompt returns the prompt of candidate i, in [0, NumCandidates): the posting,
// then the candidate. Prompts of one family share at least the posting's text.
func (f Family) Prompt(i int) string { return f.Posting + f.Candidates[i].Text }

// Group returns the family of a seed, with about the given number of words a
// prompt (fewer than 0 count as 0). In tokens of the bundled model a prompt has
// 330 to 446 at 200 words, 801 to 1,051 at 640, 2,008 to 2,626 at 1,700 and
// 3,520 to 4,460 at 3,000.
func Group(seed uint64, words int) Family {
	words = max(words, 0)
	var f Family
	f.Posting, f.Required = Posting(seed, words-words/4)
	rng := NewRng(seed ^ candidateSalt)
	for i := range f.Candidates {
		own := rng.Next()
		size := words/8 + rng.Below(words/4+1)
		f.Candidates[i] = Candidate(own, f.Required, size)
	}
	return f
}

// Posting returns the text of a job posting with at least the given number of
// filler words, and the skills [NumRequired] that it requires.
func Posting(seed uint64, numWords int) (text string, required []string) {
	lex, rng := words(), NewRng(seed)
	env := map[string]string{"company": rng.pick(lex.list("company_a")) + " " + rng.pick(lex.list("company_b"))}
	head := lex.expand(rng, lex.text["head"], env)
	required = rng.draw(lex.list("skill"), NumRequired)

	var blocks []string
	for total := 0; total < numWords; {
		block := "\n"
		if rng.Below(2) == 1 {
			block += rng.pick(lex.list("heading")) + "\n"
		}
		sentences := make([]string, 3+rng.Below(4))
		for i := range sentences {
			sentences[i] = lex.expand(rng, rng.pick(lex.list("posting")), env)
			total += countWords(sentences[i])
		}
		blocks = append(blocks, block+strings.Join(sentences, " ")+"\n")
	}

	skills := lex.text["required"]
	for _, skill := range required {
		skills += strings.Replace(lex.text["item"], "{skill}", skill, 1)
	}
	blocks = slices.Insert(blocks, rng.Below(len(blocks)+1), skills)
	return head + strings.Join(blocks, ""), required
}

// Candidate returns a summary of at least the given number of words. It names
// Count of the required skills and one to five others, in sentences spread over
// filler text.
func Candidate(seed uint64, required []string, numWords int) Summary {
	lex, rng := words(), NewRng(seed)
	count := rng.Below(NumRequired + 1)
	env := map[string]string{"first": rng.pick(lex.list("first")), "last": rng.pick(lex.list("last"))}
	has := rng.draw(required, count)
	numOthers := 1 + rng.Below(5)
	others := slices.DeleteFunc(slices.Clone(lex.list("skill")), func(s string) bool { return slices.Contains(required, s) })
	has = append(has, rng.draw(others, numOthers)...)
	has = rng.draw(has, len(has))

	mentions := mentionAll(lex, rng, has, env)
	total := 0
	for _, m := range mentions {
		total += countWords(m)
	}
	var sentences []string
	for total < numWords || len(sentences) < 2 {
		s := lex.expand(rng, rng.pick(lex.list("filler")), env)
		total += countWords(s)
		sentences = append(sentences, s)
	}
	for _, m := range mentions {
		sentences = slices.Insert(sentences, rng.Below(len(sentences)+1), m)
	}

	var text strings.Builder
	text.WriteString(lex.expand(rng, lex.text["candidate"], env))
	for len(sentences) > 0 {
		k := min(3+rng.Below(4), len(sentences))
		text.WriteString(strings.Join(sentences[:k], " ") + "\n")
		sentences = sentences[k:]
	}
	text.WriteString(lex.text["verdict"])
	return Summary{Text: text.String(), Count: count}
}

// mentionAll returns sentences that name each skill once, one or two a sentence.
func mentionAll(lex *lexicon, rng *Rng, skills []string, env map[string]string) []string {
	var sentences []string
	for len(skills) > 0 {
		list, n := "mention1", 1
		if len(skills) >= 2 && rng.Below(3) == 0 { // no draw when one skill is left
			list, n = "mention2", 2
		}
		template := rng.pick(lex.list(list))
		for _, skill := range skills[:n] {
			template = strings.Replace(template, "{skill}", skill, 1)
		}
		sentences = append(sentences, lex.expand(rng, template, env))
		skills = skills[n:]
	}
	return sentences
}

// countWords returns the number of words of one sentence: its spaces plus one.
func countWords(sentence string) int { return strings.Count(sentence, " ") + 1 }

// Answer returns the right completion for a count from 0 to 5, such as
// " three of five". The model ends it with the end-of-turn token.
func Answer(count int) string {
	lex := words()
	return strings.Replace(lex.text["answer"], "{count}", lex.list("count")[count], 1)
}

// Chat returns the ChatML form of one user message, ready for the assistant's
// turn. The judge knows its prompts in this form too.
func Chat(user string) string {
	return "<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n"
}
