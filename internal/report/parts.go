package report

func (ld *loader) dataset() error { return absent("dataset") }

func (ld *loader) export() error { return absent("export") }
