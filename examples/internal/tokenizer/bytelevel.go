package tokenizer

// The byte-level alphabet, fixed by GPT-2: every byte has a printable character of its own, so that a vocabulary of
// bytes can be written as JSON strings. Bytes that print stand for themselves, the other 68 are numbered from U+0100
// in byte order: a space is U+0120 "Ġ".
var (
	byteRune [256]rune
	runeByte [0x144]int16 // -1: not of the alphabet
)

func init() {
	for i := range runeByte {
		runeByte[i] = -1
	}
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		if prints := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae; !prints {
			r = next
			next++
		}
		byteRune[b] = r
		runeByte[r] = int16(b)
	}
}

// tokenBytes returns the bytes that a token string of the file stands for. A string with any character outside the
// alphabet, as added tokens may have, stands for itself, and ok is false.
func tokenBytes(token string) (b string, ok bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return token, false
		}
		out = append(out, byte(runeByte[r]))
	}
	return string(out), true
}
