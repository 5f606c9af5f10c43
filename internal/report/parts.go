package report

func (ld *loader) dataset() error { return absent("dataset") }
