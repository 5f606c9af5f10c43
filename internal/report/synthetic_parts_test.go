package report_test

func (y *synthetic) dataset() {}
func (y *synthetic) export()  {}
