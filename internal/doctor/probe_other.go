//go:build !linux

package doctor

import "errors"

var errNotLinux = errors.New("this is not Linux")

func landlockABI() (int, error) { return 0, errNotLinux }

func seccompFilters() error { return errNotLinux }

func memoryBytes() (total, available int64, err error) { return 0, 0, errNotLinux }
