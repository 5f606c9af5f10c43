package tokenizer

// The byte alphabet of byte-level BPE: printable bytes stand for themselves, the others for characters from U+0100 on.
var byteRune, runeByte = alphabet()

func alphabet() (to [256]rune, from map[rune]byte) {
	from = make(map[rune]byte, 256)
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		printable := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae
		if !printable {
			r = next
			next++
		}
		to[b] = r
		from[r] = byte(b)
	}
	return to, from
}

// unspell reads the alphabet back; ok is false if a character is not in it.
func unspell(s string) (out []byte, ok bool) {
	out = make([]byte, 0, len(s))
	for _, r := range s {
		b, known := runeByte[r]
		if !known {
			return nil, false
		}
		out = append(out, b)
	}
	return out, true
}
