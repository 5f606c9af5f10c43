package tokenizer

// Forget empties the cache of pieces.
func (t *Tokenizer) Forget() { t.cache = newCache() }
