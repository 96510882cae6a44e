// Package prompts makes the judge's prompts: a job posting, then one candidate,
// then "Verdict:", with the right answer known.
//
//	JOB POSTING                       } Posting: shared by the four candidates
//	Title: Senior Field Engineer      } of a Family, so their prompts have a
//	...                               } long common prefix
//	Required skills:                  }
//	- Rust                            }
//	...                               }
//
//	CANDIDATE SUMMARY                 } Candidate: names 0 to 5 of the required
//	Name: Maria Okafor                } skills, and some others
//	...                               }
//	Verdict:                          } Answer(count): " three of five"
//
// The text is a function of (seed, words) alone, by integer arithmetic, so any
// machine and any language gives the same bytes. The specification is prompts.py
// in package bundled, next to the lexicon that both read; testdata/prompts.json
// was made by it and holds this package to the byte.
//
// The model was trained on seeds from 2^40 on, and its tokenizer on 2^32 to
// 2^32 + 3,999: use seeds below 2^32 to ask it about text it has not seen.
package prompts
